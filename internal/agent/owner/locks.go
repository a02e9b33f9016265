package owner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/agent/deadline"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile"
)

// Locks implements reconcile.Owners among all processes that share a run directory: a process that
// owns a pod holds a lock on the pod's file. The kernel releases the lock of a process that was
// killed.
type Locks struct {
	dirs layout.Dirs
	self holder
	// fresh is called when this process has just acquired a pod, before anything is done to the
	// pod.
	fresh func() error

	mu    sync.Mutex
	files map[pod.Key]*os.File // locked
	busy  map[pod.Key]bool     // a call works on the pod's lock
	idle  *sync.Cond           // signalled when an entry of busy is removed
}

// holder is what a pod's lock file records of the process that owns the pod.
type holder struct {
	Command string    `json:"command"`
	PID     int       `json:"pid"`
	Since   time.Time `json:"since"`
}

func (h holder) String() string {
	if h.Command == "" {
		return "another podrun"
	}
	return fmt.Sprintf("podrun %s (process %d) since %s", h.Command, h.PID, h.Since.Local().Format(time.DateTime))
}

// NewLocks returns the locks of this process. command is Serve, Once or Down.
func NewLocks(dirs layout.Dirs, command string) *Locks {
	l := &Locks{
		dirs: dirs, self: holder{Command: command, PID: os.Getpid()}, fresh: func() error { return nil },
		files: map[pod.Key]*os.File{}, busy: map[pod.Key]bool{},
	}
	l.idle = sync.NewCond(&l.mu)
	return l
}

// OnAcquire makes the locks call acquired when this process has just acquired a pod, before
// anything is done to the pod. If acquired fails, the pod is not acquired. Call OnAcquire before
// pods are acquired in other goroutines.
func (l *Locks) OnAcquire(acquired func() error) { l.fresh = acquired }

// Acquire implements reconcile.Owners. It locks a new file if the pod's file has been removed or
// replaced, because another process may have locked the new one.
func (l *Locks) Acquire(key pod.Key) (other string, fresh bool, err error) {
	holder, fresh, err := l.acquire(key)
	if holder != nil {
		other = holder.String()
	}
	return other, fresh, err
}

// acquire is Acquire, but returns the holder itself. other is nil if no other process owns the pod.
func (l *Locks) acquire(key pod.Key) (other *holder, fresh bool, err error) {
	file := l.begin(key)
	defer l.end(key)
	if file != nil {
		here, err := sameFile(file, l.dirs.PodLock(key))
		if err != nil { // the file may still be in place
			return nil, false, fmt.Errorf("checking the lock of pod %s: %w", key, err)
		}
		if here {
			return nil, false, nil
		}
		l.drop(key)
	}
	file, other, err = l.lock(key)
	if err != nil {
		return nil, false, &reconcile.LockError{Key: key, Err: err}
	}
	if file == nil {
		return other, false, nil
	}
	l.mu.Lock()
	l.files[key] = file
	l.mu.Unlock()
	if err := l.fresh(); err != nil {
		l.drop(key)
		return nil, false, err
	}
	return nil, true, nil
}

// begin waits until no other call works on the pod's lock and returns the pod's file if this
// process owns the pod. Calls do file operations without mu, because calls for other pods need mu.
func (l *Locks) begin(key pod.Key) *os.File {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.busy[key] {
		l.idle.Wait()
	}
	l.busy[key] = true
	return l.files[key]
}

func (l *Locks) end(key pod.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.busy, key)
	l.idle.Broadcast()
}

// drop unlocks the pod's file. It does not remove the file.
func (l *Locks) drop(key pod.Key) {
	l.mu.Lock()
	file := l.files[key]
	delete(l.files, key)
	l.mu.Unlock()
	unlockFile(file)
}

// AcquireAll makes this process the owner of all of the pods. If another process owns one, it
// releases those that it has just acquired and returns an *OwnedError. It returns soon after ctx has
// ended even if something hangs.
func (l *Locks) AcquireAll(ctx context.Context, keys ...pod.Key) error {
	_, err := deadline.Promptly(ctx, func() (struct{}, error) { return struct{}{}, l.acquireAll(keys) })
	return err
}

func (l *Locks) acquireAll(keys []pod.Key) error {
	var got []pod.Key
	for _, key := range keys {
		other, fresh, err := l.acquire(key)
		if fresh {
			got = append(got, key)
		}
		if err == nil && other != nil {
			err = &OwnedError{Key: key, Holder: other.String(), Serve: other.Command == Serve}
		}
		if err != nil {
			for _, key := range got {
				l.Release(key)
			}
			return err
		}
	}
	return nil
}

// Owns reports that this process has acquired the pod. It is for tests, which check each change.
func (l *Locks) Owns(key pod.Key) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.files[key] != nil
}

// Release implements reconcile.Owners.
func (l *Locks) Release(key pod.Key) {
	file := l.begin(key)
	defer l.end(key)
	if file == nil {
		return
	}
	// Remove the file while it is locked: a process that has opened it meanwhile sees that it is
	// gone, and creates a new one.
	removeLock(file, l.dirs.PodLock(key))
	l.drop(key)
}

// Close releases all pods and leaves their files, as the kernel does when a process ends. It is for
// tests of that; the locks must not be used any more.
func (l *Locks) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, file := range l.files {
		unlockFile(file)
	}
}

// Sweep removes the lock files that killed processes left of pods that no process owns.
func (l *Locks) Sweep() error {
	entries, err := os.ReadDir(l.dirs.PodLocks())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing the pods' locks: %w", err)
	}
	var errs []error
	for _, e := range entries {
		namespace, name, _ := strings.Cut(e.Name(), "_")
		if err := l.sweep(
			pod.Key{Namespace: namespace, Name: name},
			filepath.Join(l.dirs.PodLocks(), e.Name()),
		); err != nil {
			errs = append(errs, fmt.Errorf("opening a pod's lock: %w", err))
		}
	}
	return errors.Join(errs...)
}

func (l *Locks) sweep(key pod.Key, path string) error {
	mine := l.begin(key)
	defer l.end(key)
	if mine != nil {
		return nil
	}
	f, err := openLock(path, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil { // else a process owns the pod
		_ = f.Truncate(0) // who wants the pod at this moment must not take the killed process for its owner
		removeLock(f, path)
	}
	unlockFile(f)
	return nil
}

// removeLock removes a locked file, unless the path leads to another file now.
func removeLock(f *os.File, path string) {
	if here, err := sameFile(f, path); err == nil && here {
		_ = os.Remove(path)
	}
}

// lockTries is how often to try again if the file is removed or replaced while it is being locked.
// A podrun that releases the pod at that moment removes the file once.
const lockTries = 100

// sayTries and sayDelay limit the wait for a process that has just locked a pod's file and has not
// written its holder record yet.
const (
	sayTries = 20
	sayDelay = 5 * time.Millisecond
)

var errUnsteady = errors.New("the file is replaced again and again")

// lock locks the pod's file and writes the holder record. file is nil if another process holds the
// lock; other then describes it.
func (l *Locks) lock(key pod.Key) (file *os.File, other *holder, err error) {
	path := l.dirs.PodLock(key)
	for try := range lockTries {
		f, err := openLock(path, os.O_CREATE)
		if errors.Is(err, fs.ErrNotExist) { // the directory does not exist, or the file was removed again
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				return nil, nil, err
			}
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
			f.Close()
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			other := readHolder(f)
			f.Close()
			if other.Command == "" && try < sayTries { // it may not have written its record yet
				time.Sleep(sayDelay)
				continue
			}
			return nil, &other, nil
		case err != nil:
			f.Close()
			return nil, nil, &os.PathError{Op: "flock", Path: path, Err: err}
		}
		here, err := sameFile(f, path)
		if err == nil && here {
			showKept(f)
			l.write(f)
			return f, nil, nil
		}
		unlockFile(f)
		if err != nil {
			return nil, nil, err
		}
		// Its last owner has just removed it.
	}
	return nil, nil, &os.PathError{Op: "lock", Path: path, Err: errUnsteady}
}

// showKept takes a second lock on the file (an open file description lock), by which Kept sees that
// the file's process owns the pod. Such a lock can be tested without taking it, so a reader never
// blocks an owner.
func showKept(f *os.File) {
	// If the file system has no such locks, the pod is shown as Unowned although it is owned.
	_ = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_RDLCK, Whence: io.SeekStart})
}

// write writes the holder record. If that fails, as on a full disk, the lock still holds.
func (l *Locks) write(f *os.File) {
	self := l.self
	self.Since = time.Now().UTC().Truncate(time.Second)
	text, err := json.Marshal(self)
	if err == nil && f.Truncate(0) == nil { // a killed process may have left a longer record
		_, _ = f.WriteAt(text, 0)
	}
}

func readHolder(f *os.File) holder {
	var h holder
	const most = 4096
	text, err := io.ReadAll(io.NewSectionReader(f, 0, most))
	if err != nil || json.Unmarshal(text, &h) != nil {
		return holder{}
	}
	return h
}

// sameFile reports that the path leads to the opened file.
func sameFile(f *os.File, path string) (bool, error) {
	mine, err := f.Stat()
	if err != nil {
		return false, err
	}
	now, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(mine, now), err
}

func unlockFile(f *os.File) {
	// Unlock explicitly, because a child between fork and exec still shares the open file.
	_ = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_UNLCK, Whence: io.SeekStart})
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
	f.Close()
}
