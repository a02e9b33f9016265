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

// Requests pass requests to restart containers from podrun restart to the process that owns the pod. A request is an
// empty file below the run directory, which only root can write, named after what is to be restarted. It names the
// instance by its ID, which is used once: so a request that is made twice, or is read after a crash of podrun, restarts
// nothing twice. The owner removes the file when it has answered the request. Package plan decides whether anything is
// restarted.
type Requests struct {
	dirs layout.Dirs
	log  *slog.Logger
	// Changed receives whenever there are requests, while Run runs.
	Changed chan struct{}
	watch   *watch.Watcher

	mu sync.Mutex
	// read are the requests as Run has read them; hasRead says that it has.
	read    []pod.RestartRequest
	hasRead bool
}

// NewRequests returns the requests below the run directory.
func NewRequests(dirs layout.Dirs, log *slog.Logger) *Requests {
	return &Requests{dirs: dirs, log: log, Changed: make(chan struct{}), watch: watch.New(log)}
}

// Unwatched makes Run read the requests once a minute only, and returns r: no goroutine of it waits in the
// kernel, which tests in virtual time need.
func (r *Requests) Unwatched() *Requests {
	r.watch = watch.Silent(r.log)
	return r
}

// path returns the file of a request. Neither the name of a container nor an ID has an underscore.
func (r *Requests) path(q pod.RestartRequest) string {
	return filepath.Join(layout.RestartRequests(r.dirs), string(q.UID)+"_"+q.Container+"_"+q.ID)
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

// Post makes a request. If it has been made and is not answered yet, it stays as it is.
func (r *Requests) Post(q pod.RestartRequest) error {
	f, err := os.OpenFile(r.path(q), os.O_CREATE|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no podrun accepts requests in %s: %w", r.dirs.Run, err)
	}
	if err != nil {
		return fmt.Errorf("requesting a restart: %w", err)
	}
	return f.Close()
}

// Pending reports whether a request has not been answered yet.
func (r *Requests) Pending(q pod.RestartRequest) bool {
	_, err := os.Lstat(r.path(q))
	return err == nil
}

// Of returns the requests for the pod with the UID. While Run runs, it does not touch the disk.
func (r *Requests) Of(uid pod.UID) []pod.RestartRequest {
	r.mu.Lock()
	known, hasRead := r.read, r.hasRead
	r.mu.Unlock()
	if !hasRead {
		known = r.all()
	}
	var all []pod.RestartRequest
	for _, q := range known {
		if q.UID == uid {
			all = append(all, q)
		}
	}
	return all
}

// refresh reads the requests, and reports whether there are some and whether they have changed.
func (r *Requests) refresh() (some, changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.read
	r.read, r.hasRead = r.all(), true
	return len(r.read) > 0, !slices.Equal(before, r.read)
}

func (r *Requests) all() []pod.RestartRequest {
	entries, err := os.ReadDir(layout.RestartRequests(r.dirs))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.log.Warn("reading the requests to restart containers failed", "err", err)
	}
	var all []pod.RestartRequest
	for _, e := range entries {
		if q, ok := parseRequest(e.Name()); ok {
			all = append(all, q)
		}
	}
	return all
}

// Remove removes a request: because it is answered, or because its maker does not wait for an answer any more.
func (r *Requests) Remove(q pod.RestartRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read = slices.DeleteFunc(slices.Clone(r.read), func(other pod.RestartRequest) bool { return other == q })
	if err := os.Remove(r.path(q)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.log.Warn("removing a request to restart a container failed", "container", q.Container, "err", err)
	}
}

// sweep removes the requests for pods that do not exist any more, whose maker was killed.
func (r *Requests) sweep() {
	for _, q := range r.all() {
		if _, err := os.Lstat(r.dirs.Pod(q.UID)); errors.Is(err, fs.ErrNotExist) {
			r.Remove(q)
		}
	}
}

// requestPoll is how often the requests are read where the kernel does not report new ones. Where it
// does, requestCheck is how often they are read for what no report tells: those for pods that are gone,
// and those that nobody has answered.
const (
	requestPoll  = 5 * time.Second
	requestCheck = time.Minute
)

// Run sends to Changed, until ctx ends, whenever there are requests.
func (r *Requests) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_ = r.watch.Add(layout.RestartRequests(r.dirs)) // before Run, Add only records the path
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

// check removes the requests for pods that are gone, and returns the time until the next check. The
// directory is added again because it may have been replaced.
func (r *Requests) check() time.Duration {
	r.sweep()
	if r.watch.Add(layout.RestartRequests(r.dirs)) != nil {
		return requestPoll
	}
	return requestCheck
}
