package owner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys/watch"
)

// files are requests of one kind that a command makes and the process that owns what they are about answers. A request
// is an empty file below the run directory, which only root can write, named after what is requested. Whoever answers
// it removes the file.
type files[Q comparable] struct {
	dir, run string
	log      *slog.Logger
	// what says what is requested, for messages.
	what string
	name func(q Q) string
	// parse returns the request of a file's name, and stale reports that nobody will answer it.
	parse func(name string) (q Q, ok bool)
	stale func(q Q) bool
	// Changed receives whenever there are requests, while Run runs.
	Changed chan struct{}
	watch   *watch.Watcher

	mu sync.Mutex
	// read are the requests as Run has read them; hasRead says that it has.
	read    []Q
	hasRead bool
}

// Unwatched makes Run read the requests once a minute only: no goroutine of it waits in the kernel, which
// tests in virtual time need.
func (r *files[Q]) Unwatched() { r.watch = watch.Silent(r.log) }

func (r *files[Q]) path(q Q) string { return filepath.Join(r.dir, r.name(q)) }

// Post makes a request. If it has been made and is not answered yet, it stays as it is.
func (r *files[Q]) Post(q Q) error {
	f, err := os.OpenFile(r.path(q), os.O_CREATE|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no podrun accepts requests in %s: %w", r.run, err)
	}
	if err != nil {
		return fmt.Errorf("requesting %s: %w", r.what, err)
	}
	return f.Close()
}

// Pending reports whether a request has not been answered yet.
func (r *files[Q]) Pending(q Q) bool {
	_, err := os.Lstat(r.path(q))
	return err == nil
}

// All returns the requests. While Run runs, it does not touch the disk.
func (r *files[Q]) All() []Q {
	r.mu.Lock()
	known, hasRead := r.read, r.hasRead
	r.mu.Unlock()
	if !hasRead {
		known = r.onDisk()
	}
	return known
}

// refresh reads the requests, and reports whether there are some and whether they have changed.
func (r *files[Q]) refresh() (some, changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.read
	r.read, r.hasRead = r.onDisk(), true
	return len(r.read) > 0, !slices.Equal(before, r.read)
}

func (r *files[Q]) onDisk() []Q {
	entries, err := os.ReadDir(r.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.log.Warn("reading the requests for "+r.what+" failed", "err", err)
	}
	var all []Q
	for _, e := range entries {
		if q, ok := r.parse(e.Name()); ok {
			all = append(all, q)
		}
	}
	return all
}

// Remove removes a request: because it is answered, or because its maker does not wait for an answer any more.
func (r *files[Q]) Remove(q Q) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read = slices.DeleteFunc(slices.Clone(r.read), func(other Q) bool { return other == q })
	if err := os.Remove(r.path(q)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.log.Warn("removing a request for "+r.what+" failed", "err", err)
	}
}

// abandoned is the age of a request whose maker does not wait any more.
const abandoned = 5 * time.Minute

func (r *files[Q]) isAbandoned(q Q) bool {
	info, err := os.Lstat(r.path(q))
	return err == nil && time.Since(info.ModTime()) > abandoned
}

// sweep removes the requests that nobody will answer.
func (r *files[Q]) sweep() {
	for _, q := range r.onDisk() {
		if r.stale(q) {
			r.Remove(q)
		}
	}
}

// requestPoll is how often the requests are read where the kernel does not report new ones. Where it
// does, requestCheck is how often they are read for what no report tells: those that nobody will answer,
// and those that nobody has answered.
const (
	requestPoll  = 5 * time.Second
	requestCheck = time.Minute
)

// Run sends to Changed, until ctx ends, whenever there are requests.
func (r *files[Q]) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_ = r.watch.Add(r.dir) // before Run, Add only records the path
	running.Go(func() { _ = r.watch.Run(ctx) })
	// The first check is early: by then the watcher says whether it can watch.
	timer := time.NewTimer(requestPoll)
	defer timer.Stop()
	for due := true; ; {
		if some, changed := r.refresh(); some && (changed || due) {
			select {
			case r.Changed <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		due = false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.watch.Events():
		case <-timer.C:
			timer.Reset(r.check())
			due = true
		}
	}
}

// check removes the requests that nobody will answer, and returns the time until the next check. The
// directory is added again because it may have been replaced.
func (r *files[Q]) check() time.Duration {
	r.sweep()
	if r.watch.Add(r.dir) != nil {
		return requestPoll
	}
	return requestCheck
}

// Requests pass requests to restart containers from podrun restart to the process that owns the pod. A request names
// the instance by its ID, which is used once: so a request that is made twice, or is read after a crash of podrun,
// restarts nothing twice. Package plan decides whether anything is restarted.
type Requests struct{ files[pod.RestartRequest] }

// NewRequests returns the requests below the run directory.
func NewRequests(dirs layout.Dirs, log *slog.Logger) *Requests {
	return &Requests{files[pod.RestartRequest]{
		dir: layout.RestartRequests(dirs), run: dirs.Run, log: log, what: "a restart",
		name: func(q pod.RestartRequest) string { // neither the name of a container nor an ID has an underscore
			return string(q.UID) + "_" + q.Container + "_" + q.ID
		},
		parse: parseRequest,
		stale: func(q pod.RestartRequest) bool { // its pod does not exist any more
			_, err := os.Lstat(dirs.Pod(q.UID))
			return errors.Is(err, fs.ErrNotExist)
		},
		Changed: make(chan struct{}), watch: watch.New(log),
	}}
}

// parseRequest returns the request of the file name.
func parseRequest(name string) (q pod.RestartRequest, ok bool) {
	rest, id, hasID := cutLast(name)
	uid, container, hasContainer := cutLast(rest)
	return pod.RestartRequest{UID: pod.UID(uid), Container: container, ID: id}, hasID && hasContainer
}

func cutLast(text string) (before, after string, found bool) {
	at := strings.LastIndex(text, "_")
	if at < 0 {
		return text, "", false
	}
	return text[:at], text[at+1:], true
}

// Of returns the requests for the pod with the UID. While Run runs, it does not touch the disk.
func (r *Requests) Of(uid pod.UID) []pod.RestartRequest {
	var all []pod.RestartRequest
	for _, q := range r.All() {
		if q.UID == uid {
			all = append(all, q)
		}
	}
	return all
}
