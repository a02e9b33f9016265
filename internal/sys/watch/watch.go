// Package watch tells that a file or directory may have changed. It only rings: it carries no facts,
// and whoever hears it reads the truth. It does not own polling: a path that cannot be watched is
// refused with ErrPoll, and the caller looks by itself, now and then.
package watch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

// ErrPoll says that the kernel cannot tell of changes of a path: its inotify limits are used up, or
// the file system is changed by others than this machine.
var ErrPoll = errors.New("changes are not notified here, look from time to time")

// Watcher watches paths. Add and Remove may be called at any time, from any goroutine.
type Watcher struct {
	log    *slog.Logger
	events chan string

	mu sync.Mutex
	// silent: the kernel is not asked.
	silent bool
	// notify is nil outside Run and where the kernel has none to give.
	notify *fsnotify.Watcher
	// running and asked: paths added before Run are taken up by it.
	running bool
	asked   map[string]string // path as added -> path as watched, without symbolic links
	polling bool              // that polling takes over
}

// New returns a Watcher that hears nothing before Run.
func New(log *slog.Logger) *Watcher {
	return &Watcher{log: log, events: make(chan string), asked: map[string]string{}}
}

// Silent returns a Watcher that takes all paths and hears of no change, as if every event were lost: its user looks
// from time to time. Nothing of it waits in the kernel, which virtual time needs.
func Silent(log *slog.Logger) *Watcher {
	w := New(log)
	w.silent = true
	return w
}

// Events delivers the paths, as they were added, that may have changed: a directory when an entry of it
// came, went or was written, a file when it was. A path that rings again before it is received is
// delivered once. It is never closed.
func (w *Watcher) Events() <-chan string { return w.events }

// Add watches path; a symbolic link stands for what it points to now. To add a path again is cheap, and
// needed after it was replaced by another file of that name. Before Run it only takes note. It fails
// with ErrPoll, or as opening the path would.
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
	if kind := remote(real); kind != "" {
		w.report("files are looked at from time to time: changes on this file system are not notified",
			"path", path, "filesystem", kind)
		return fmt.Errorf("watching %s: %w", path, ErrPoll)
	}
	switch err := w.notify.Add(real); {
	case errors.Is(err, unix.ENOSPC):
		w.report("files are looked at from time to time: out of inotify watches, raise fs.inotify.max_user_watches",
			"path", path)
		return fmt.Errorf("watching %s: %w", path, ErrPoll)
	case err != nil:
		return fmt.Errorf("watching %s: %w", path, err)
	}
	return nil
}

// Remove stops watching path; one that was not added is no error.
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

// drop stops watching what no added path stands for any more.
func (w *Watcher) drop(real string) {
	for _, other := range w.asked {
		if other == real {
			return
		}
	}
	if w.notify != nil {
		// It fails only for what is no longer watched.
		_ = w.notify.Remove(real)
	}
}

// Run watches until ctx ends. At its start every path added before rings once.
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
			w.report("files are looked at from time to time: no inotify, see fs.inotify.max_user_instances", "err", err)
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
			w.log.Warn("cannot watch", "path", path, "err", err)
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

// report warns the first time and is quiet afterwards: each path would say the same.
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

// remote names the file system of path if others can change it without this kernel's knowledge.
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
