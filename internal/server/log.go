package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/server/yielding"
)

// LogRequest is a request for a container's log, with the options of v1.PodLogOptions.
type LogRequest struct {
	Namespace, Pod, Container    string
	Follow, Previous, Timestamps bool
	// Tail is how many of the last lines to return; nil means all.
	Tail *int
	// Since excludes older lines; zero means none.
	Since time.Time
	// Stream is the stream to return, v1.LogStreamStdout or v1.LogStreamStderr; "" or v1.LogStreamAll: both.
	Stream string
	// Run is the containerID of the instance; "": the newest one, or with Previous the one before.
	Run string
	// ErrOut gets standard error; nil: it is mixed with standard output.
	ErrOut io.Writer
	// CaughtUp is called, with Follow, whenever all that the log has is written; nil: nothing is called.
	CaughtUp func()
}

var (
	// ErrNotFound is a Node's error for a pod, container or log that does not exist.
	ErrNotFound = errors.New("not found")
	// ErrNotYet is a Node's error for a container that has not run yet.
	ErrNotYet = errors.New("waiting to start")
)

// containerLog handles /containerLogs/NAMESPACE/POD/CONTAINER with the kubelet's parameters.
func containerLog(w http.ResponseWriter, r *http.Request, o Options, slots streamSlots) {
	want := LogRequest{
		Namespace: r.PathValue("namespace"), Pod: r.PathValue("pod"), Container: r.PathValue("container"),
	}
	limit, err := want.parse(r.URL.Query(), time.Now())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	o.sendLog(w, r, slots, logResponse{want, limit, 1, o.Node.Log})
}

// logResponse is a log that is sent.
type logResponse struct {
	LogRequest
	limit      int64 // bytes; -1: all
	containers int   // how many are read
	read       func(context.Context, LogRequest, io.Writer) error
}

// sendLog responds with a log, or with why there is none.
func (o Options) sendLog(w http.ResponseWriter, r *http.Request, slots streamSlots, l logResponse) {
	want := l.LogRequest
	// A HEAD request ends at once, even if the body of a GET would not end.
	want.Follow = want.Follow && r.Method != http.MethodHead
	// A log that is not followed may be long, and its client slow. Many that are merged take the memory of several.
	for range (l.containers-1)/containersOfStream + 1 {
		end, ok := slots.begin(w, r)
		if !ok {
			return
		}
		defer end()
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	out := &flushWriter{w: w, control: http.NewResponseController(w), left: l.limit}
	ctx, cancel := untilShutdown(r.Context())
	defer cancel()
	if want.Follow { // the log may be silent for long
		go yielding.AtHangup(ctx, cancel)
	}
	err := l.read(ctx, want, out)
	switch {
	case err == nil, errors.Is(err, errEnough):
	case out.begun || ctx.Err() != nil:
		o.Log.Debug("log response ended before the end of the log",
			"pod", want.Pod, "container", want.Container, "err", err)
	case errors.Is(err, ErrNotFound):
		http.Error(w, err.Error(), http.StatusNotFound)
	case errors.Is(err, ErrNotYet):
		http.Error(w, err.Error(), http.StatusBadRequest)
	default:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// parse reads the query parameters; limit is the maximum number of bytes, -1 for all.
func (l *LogRequest) parse(q url.Values, now time.Time) (limit int64, err error) {
	bad := func(name string) error {
		return errors.New(name + "=" + strconv.Quote(q.Get(name)) + " cannot be used")
	}
	for name, to := range map[string]*bool{"follow": &l.Follow, "previous": &l.Previous, "timestamps": &l.Timestamps} {
		if text := q.Get(name); text != "" {
			if *to, err = strconv.ParseBool(text); err != nil {
				return 0, bad(name)
			}
		}
	}
	for _, name := range []string{"tail", "tailLines"} { // tail is the older name
		if text := q.Get(name); text != "" && (name != "tail" || text != "all") {
			n, err := strconv.Atoi(text)
			if err != nil || n < 0 {
				return 0, bad(name)
			}
			l.Tail = &n
		}
	}
	if text := q.Get("sinceSeconds"); text != "" {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < 1 {
			return 0, bad("sinceSeconds")
		}
		l.Since = now.Add(-time.Duration(n) * time.Second)
	}
	if text := q.Get("sinceTime"); text != "" {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil || !l.Since.IsZero() {
			return 0, bad("sinceTime")
		}
		l.Since = at
	}
	l.Stream = q.Get("stream")
	if !slices.Contains([]string{"", v1.LogStreamAll, v1.LogStreamStdout, v1.LogStreamStderr}, l.Stream) {
		return 0, bad("stream")
	}
	limit = -1
	if text := q.Get("limitBytes"); text != "" {
		if limit, err = strconv.ParseInt(text, 10, 64); err != nil || limit < 1 {
			return 0, bad("limitBytes")
		}
	}
	if l.Follow && l.Previous {
		return 0, errors.New("the previous run has ended: it cannot be followed")
	}
	return limit, nil
}

// errEnough stops the log after the requested number of bytes.
var errEnough = errors.New("no more is wanted")

// flushWriter sends each write at once. Every write has its own deadline, so that a slow client can
// read a long response.
type flushWriter struct {
	w       io.Writer
	control *http.ResponseController
	begun   bool
	left    int64 // bytes; negative: no limit
}

// Write implements io.Writer.
func (p *flushWriter) Write(text []byte) (int, error) {
	cut := text
	if p.left >= 0 && int64(len(text)) > p.left {
		cut = text[:p.left]
	}
	if len(cut) > 0 {
		p.begun = true
		_ = p.control.SetWriteDeadline(time.Now().Add(writeTime)) // test recorders do not support deadlines
		if n, err := p.w.Write(cut); err != nil {
			return n, err
		}
		if p.left > 0 {
			p.left -= int64(len(cut))
		}
		if err := p.control.Flush(); err != nil {
			return len(cut), err
		}
	}
	if p.left == 0 { // also if all of text was sent: a log that is followed may be silent from now on
		return len(cut), errEnough
	}
	return len(text), nil
}

type shutdownKey struct{}

// withShutdown returns base with the context server, which ends when the server shuts down, for
// untilShutdown.
func withShutdown(base, server context.Context) context.Context {
	return context.WithValue(base, shutdownKey{}, server)
}

// untilShutdown returns the context of a request, which also ends when the server shuts down, for
// responses that would continue.
func untilShutdown(request context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(request)
	if server, ok := request.Value(shutdownKey{}).(context.Context); ok {
		stop := context.AfterFunc(server, cancel)
		return ctx, func() { stop(); cancel() }
	}
	return ctx, cancel
}
