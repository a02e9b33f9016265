// Package watch reports that a file or directory may have changed. An event is only a wakeup and
// has no content: its receiver must read the current state.
//
// The package does not poll. If a path cannot be watched, Add returns ErrPoll, and the caller must
// poll that path itself. Begin reading at Watcher.
package watch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

// ErrPoll reports that the kernel cannot notify of changes of a path: its inotify limits are
// exhausted, or the file system can be changed by other machines.
var ErrPoll = errors.New("no change notifications for this path, it must be polled")

// Watcher watches paths. Add and Remove may be called at any time, from any goroutine.
type Watcher struct {
	log    *slog.Logger
	events chan string

	mu sync.Mutex
	// silent: inotify is not used.
	silent bool
	// notify is nil outside Run, and if the kernel provides no inotify instance.
	notify *fsnotify.Watcher
	// running and asked: Run adds the paths that were added before it.
	running bool
	asked   map[string]string // path as added -> path as watched, without symbolic links
	polling bool              // the warning that files are polled was logged
}

// New returns a Watcher that reports nothing before Run.
func New(log *slog.Logger) *Watcher {
	return &Watcher{log: log, events: make(chan string), asked: map[string]string{}}
}

// Silent returns a Watcher that accepts all paths and reports no change, as if every event were
// lost; its user must poll. No goroutine of it waits in the kernel, which tests in virtual time
// need.
func Silent(log *slog.Logger) *Watcher {
	w := New(log)
	w.silent = true
	return w
}

// Events delivers the paths, as they were added, that may have changed: a directory if an entry in
// it was created, removed or written, a file if it was written. A path with several events before
// it is received is delivered once. The channel is never closed.
func (w *Watcher) Events() <-chan string { return w.events }

// Add watches path; a symbolic link stands for the path that it points to now. Adding a path again
// is cheap, and necessary after another file replaced it. Before Run, Add only records the path.
// The error is ErrPoll or that of opening the path.
func (w *Watcher) Add(path string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.add(path)
}

func (w *Watcher) add(path string) error {
	before, again := w.asked[path]
	w.asked[path] = path
	if !w.running || w.silent {
		return nil
	}
	if w.notify == nil {
		return ErrPoll
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("watching: %w", err)
	}
	w.asked[path] = real
	if again && before != real {
		w.drop(before)
	}
	polled := func(why string, args ...any) error {
		w.report("files are polled: "+why, append([]any{"path", path}, args...)...)
		return fmt.Errorf("watching %s: %w", path, ErrPoll)
	}
	if kind := remote(real); kind != "" {
		return polled("this file system sends no change notifications", "filesystem", kind)
	}
	switch err := w.notify.Add(real); {
	case errors.Is(err, unix.ENOSPC):
		return polled("out of inotify watches, raise fs.inotify.max_user_watches")
	case errors.Is(err, unix.EACCES) && os.Geteuid() == 0: // SELinux denies it, for example
		return polled("the security policy of this machine does not let podrun watch them")
	case err != nil:
		return fmt.Errorf("watching %s: %w", path, err)
	}
	return nil
}

// Remove stops watching path; it has no effect on a path that was not added.
func (w *Watcher) Remove(path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	real, ok := w.asked[path]
	if !ok {
		return
	}
	delete(w.asked, path)
	w.drop(real)
}

// drop stops watching a real path that no added path stands for any more.
func (w *Watcher) drop(real string) {
	for _, other := range w.asked {
		if other == real {
			return
		}
	}
	if w.notify != nil {
		// It fails only for a path that is not watched any more.
		_ = w.notify.Remove(real)
	}
}

// Run watches until ctx ends. At its start it delivers every path that was added before, once.
func (w *Watcher) Run(ctx context.Context) error {
	pending := w.start()
	defer w.stop()
	var events chan fsnotify.Event
	var failures chan error
	if n := w.watcher(); n != nil {
		events, failures = n.Events, n.Errors
	}
	for {
		var out chan string
		var next string
		if len(pending) > 0 {
			out, next = w.events, pending[0]
		}
		select {
		case <-ctx.Done():
			return nil
		case out <- next:
			pending = pending[1:]
		case e := <-events:
			pending = merge(pending, w.event(e.Name))
		case err := <-failures:
			w.log.Debug("watching files failed", "err", err)
			pending = merge(pending, w.all()) // the queue overflowed: anything may have changed
		}
	}
}

func (w *Watcher) start() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = true
	if !w.silent {
		notify, err := fsnotify.NewWatcher()
		if err != nil {
			w.report("files are polled: no inotify instance, see fs.inotify.max_user_instances", "err", err)
		} else {
			w.notify = notify
		}
	}
	var paths []string
	for path := range w.asked {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	for _, path := range paths {
		if err := w.add(path); err != nil && !errors.Is(err, ErrPoll) && !errors.Is(err, fs.ErrNotExist) {
			w.log.Warn("path cannot be watched", "path", path, "err", err)
		}
	}
	return paths
}

func (w *Watcher) stop() {
	w.mu.Lock()
	notify := w.notify
	w.notify, w.running = nil, false
	w.mu.Unlock()
	if notify != nil {
		_ = notify.Close()
	}
}

func (w *Watcher) watcher() *fsnotify.Watcher {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.notify
}

// event returns the added paths that an event at name concerns.
func (w *Watcher) event(name string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	dir := filepath.Dir(name)
	var paths []string
	for path, real := range w.asked {
		if real == name || real == dir {
			paths = append(paths, path)
		}
	}
	return paths
}

func (w *Watcher) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var paths []string
	for path := range w.asked {
		paths = append(paths, path)
	}
	return paths
}

// report logs a warning the first time and at debug level afterwards, because the message is the
// same for each path.
func (w *Watcher) report(message string, args ...any) {
	if w.polling {
		w.log.Debug(message, args...)
		return
	}
	w.polling = true
	w.log.Warn(message, args...)
}

func merge(pending, rung []string) []string {
	for _, path := range rung {
		if !slices.Contains(pending, path) {
			pending = append(pending, path)
		}
	}
	return pending
}

// remote returns the type of path's file system if it can be changed without the knowledge of this
// kernel; otherwise "".
func remote(path string) string {
	var st unix.Statfs_t
	if unix.Statfs(path, &st) != nil {
		return ""
	}
	// The field's width differs between architectures; the magic numbers have 32 bits.
	switch int64(uint32(st.Type)) {
	case unix.NFS_SUPER_MAGIC:
		return "nfs"
	case unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC:
		return "smb"
	case unix.FUSE_SUPER_MAGIC:
		return "fuse"
	case unix.V9FS_MAGIC:
		return "9p"
	case unix.CEPH_SUPER_MAGIC:
		return "ceph"
	case unix.AFS_FS_MAGIC, unix.AFS_SUPER_MAGIC:
		return "afs"
	}
	return ""
}
