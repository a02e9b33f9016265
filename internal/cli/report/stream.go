package report

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/containerlog"
	"podrun.io/podrun/internal/containerlog/cri"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status/summary"
	"podrun.io/podrun/internal/sys/activity"
)

// Stream prints the logs of the containers of a run as they are written: each line at once, after
// the name of its pod and container. Its methods are safe for concurrent use.
type Stream struct {
	Out, ErrOut io.Writer
	// Coloured gives the names colours.
	Coloured bool
	Groups   *Groups
	Dirs     layout.Dirs
	Log      *slog.Logger
	// Began is when the run began. What containers wrote before that is not printed.
	Began time.Time

	mu      sync.Mutex
	readers map[pod.Instance]*streamReader
	colours map[string]string // by name
	group   string            // the name whose lines are printed in a group now

	// writing is held while lines are written.
	writing sync.Mutex
}

// streamReader reads the log of one instance.
type streamReader struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{} // closed when nothing more of the log is printed
	writes activity.Writes
	// ends is set if all of the log is to be printed: its container has ended. all is set if it has been.
	ends, all atomic.Bool
}

// Follow prints the logs of the instances of p from now on, those that have ended included.
func (s *Stream) Follow(p *v1.Pod) {
	for _, role := range summary.Roles(p) {
		if role.Status == nil {
			continue
		}
		i := pod.Instance{Key: pod.KeyOf(p), UID: p.UID, Container: role.Container.Name}
		restarts := int(role.Status.RestartCount)
		state, last := role.Status.State, role.Status.LastTerminationState.Terminated
		waits := state.Running == nil && state.Terminated == nil
		if last != nil && !s.isEarlier(last) {
			of := i
			of.ID, of.Attempt = pod.IDOf(last.ContainerID), restarts
			if !waits {
				of.Attempt--
			}
			s.follow(of, shortName(p)+"/"+i.Container, last.StartedAt.Time)
		}
		i.ID, i.Attempt = role.InstanceID(), restarts
		switch {
		case state.Running != nil:
			s.follow(i, shortName(p)+"/"+i.Container, state.Running.StartedAt.Time)
		case state.Terminated != nil:
			if s.isEarlier(state.Terminated) {
				continue
			}
			s.follow(i, shortName(p)+"/"+i.Container, state.Terminated.StartedAt.Time)
		}
	}
}

// isEarlier reports whether an instance ended before the run began. A status has whole seconds: an instance that
// ended in the second in which the run began may be of the run.
func (s *Stream) isEarlier(t *v1.ContainerStateTerminated) bool {
	return t.FinishedAt.Time.Before(s.Began.Truncate(time.Second))
}

// follow begins to print the log of an instance that was started at a time.
func (s *Stream) follow(i pod.Instance, name string, started time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readers == nil {
		s.readers, s.colours = map[pod.Instance]*streamReader{}, map[string]string{}
	}
	if s.readers[i] != nil || i.ID == "" || i.Attempt < 0 {
		return
	}
	o := cri.ReadOptions{Follow: true}
	if started.Before(s.Began) {
		o.Since = s.Began
	}
	if _, has := s.colours[name]; !has {
		s.colours[name] = printers.SeriesColour(len(s.colours))
	}
	label := name + " | "
	if s.Coloured {
		label = printers.Colour(name+" |", s.colours[name]) + " "
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &streamReader{name: name, cancel: cancel, done: make(chan struct{})}
	s.readers[i] = r
	go s.read(ctx, r, i, label, o)
}

// read prints the log of an instance. label precedes its lines.
func (s *Stream) read(ctx context.Context, r *streamReader, i pod.Instance, label string, o cri.ReadOptions) {
	defer close(r.done)
	defer r.cancel()
	out := &streamWriter{stream: s, to: s.Out, name: r.name, label: label}
	errOut := &streamWriter{stream: s, to: s.ErrOut, name: r.name, label: label}
	if s.Groups.enabled() {
		errOut.to = s.Out // the marks of groups are there
	}
	reader := containerlog.Reader{Dirs: s.Dirs, Warn: func(err error) {
		s.Log.Debug("the newest lines of a container log may be missing", "container", r.name, "err", err)
	}}
	err := reader.Read(ctx, i, o, r.writes.Writer(cli.ForTerminal(out)), r.writes.Writer(cli.ForTerminal(errOut)))
	if err != nil && ctx.Err() == nil {
		s.Log.Debug("reading container log failed", "container", r.name, "err", err)
	}
	defer r.writes.Begin()()
	out.end()
	errOut.end()
	s.endGroup(r.name)
	r.all.Store(err == nil || errors.Is(err, fs.ErrNotExist)) // without output there is no log
}

// Wait waits until everything that the ended containers of pods have written is printed. It gives up when stop is
// closed, or when nothing has been written for a time: the end of a log may not come. A slow reader is waited for.
func (s *Stream) Wait(pods []*v1.Pod, quiet time.Duration, stop <-chan struct{}) {
	s.wait(quiet, stop, func(i pod.Instance) bool {
		return slices.ContainsFunc(pods, func(p *v1.Pod) bool {
			return i.Key == pod.KeyOf(p) && i.UID == p.UID && !slices.ContainsFunc(allStatuses(p),
				func(c v1.ContainerStatus) bool { return c.Name == i.Container && c.State.Running != nil })
		})
	})
}

// The removal of a log waits until it is printed, but only removalDelay without a write; the end of the run closeDelay.
const (
	removalDelay = 5 * time.Second
	closeDelay   = time.Second
)

// Removing waits until the logs of a pod, whose containers have ended, are printed, or stop is closed. It is called
// before they are removed.
func (s *Stream) Removing(key pod.Key, uid pod.UID, stop <-chan struct{}) {
	s.wait(removalDelay, stop, func(i pod.Instance) bool { return i.Key == key && i.UID == uid })
}

// wait waits for the readers of logs that end.
func (s *Stream) wait(quiet time.Duration, stop <-chan struct{}, which func(pod.Instance) bool) {
	var all []*streamReader
	s.each(func(i pod.Instance, r *streamReader) {
		if which(i) {
			r.ends.Store(true)
			r.writes.Restart()
			all = append(all, r)
		}
	})
	for _, r := range all {
		r.writes.Await(r.done, stop, quiet)
	}
}

func (s *Stream) each(do func(pod.Instance, *streamReader)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range s.readers {
		do(i, r)
	}
}

// Close ends the printing of what still runs, and names the logs whose end is not printed. It waits for readers that
// are writing until shortly after stop is closed.
func (s *Stream) Close(stop <-chan struct{}) {
	var all []*streamReader
	s.each(func(_ pod.Instance, r *streamReader) {
		if all = append(all, r); !r.ends.Load() {
			r.cancel()
		}
		r.writes.Restart()
	})
	untilStop := func(do func(*streamReader)) {
		_, _ = within(func() error {
			for _, r := range all {
				do(r)
			}
			return nil
		}, math.MaxInt64, stop)
	}
	untilStop(func(r *streamReader) {
		r.writes.Await(r.done, nil, closeDelay)
		r.cancel()
	})
	untilStop(func(r *streamReader) {
		if r.ends.Load() && !r.all.Load() {
			cli.Warnf(s.ErrOut, "the end of the log of %s is missing here", r.name)
		}
	})
}

// endGroup ends the group of a container's lines if it is the current one.
func (s *Stream) endGroup(name string) {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.group == name && name != "" {
		s.group = ""
		_, _ = io.WriteString(s.Out, s.Groups.end())
	}
}

// longestLine is how much of a line without an end is kept until it is printed as a line.
const longestLine = 64 << 10

// streamWriter writes whole lines of one container.
type streamWriter struct {
	stream      *Stream
	to          io.Writer
	name, label string
	rest        []byte // a line whose end has not been written yet
}

// Underlying returns the writer that the lines are written to.
func (w *streamWriter) Underlying() io.Writer {
	if u, ok := w.to.(interface{ Underlying() io.Writer }); ok {
		return u.Underlying()
	}
	return w.to
}

// Write implements io.Writer.
func (w *streamWriter) Write(b []byte) (int, error) {
	var text []byte
	for line := range bytes.Lines(b) {
		w.rest = append(w.rest, line...)
		if !bytes.HasSuffix(line, []byte{'\n'}) {
			if len(w.rest) < longestLine {
				continue
			}
			w.rest = append(w.rest, '\n')
		}
		text = append(append(text, w.label...), w.rest...)
		w.rest = w.rest[:0]
	}
	if len(text) == 0 {
		return len(b), nil
	}
	s := w.stream
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.Groups.enabled() && s.group != w.name {
		mark := s.Groups.begin(w.name)
		if s.group != "" {
			mark = s.Groups.end() + mark
		}
		s.group = w.name
		if _, err := io.WriteString(s.Out, mark); err != nil {
			return 0, err
		}
		s.Groups.began()
	}
	if _, err := s.Groups.Guard(w.to).Write(text); err != nil { // whole lines
		return 0, err
	}
	return len(b), nil
}

// end writes a last line that has no line feed.
func (w *streamWriter) end() {
	if len(w.rest) > 0 {
		_, _ = w.Write([]byte{'\n'})
	}
}

// shortName returns the name of a pod in its manifest, without the node's name, and with the namespace if it
// is not the default one.
func shortName(p *v1.Pod) string {
	name := pod.ManifestName(p)
	if p.Namespace != v1.NamespaceDefault {
		return fmt.Sprintf("%s/%s", p.Namespace, name)
	}
	return name
}
