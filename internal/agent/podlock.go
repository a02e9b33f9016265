package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile"
)

// podLocks implement reconcile.Owners among all processes of a run directory, by a file for each pod that is locked
// as long as a process has the pod. The kernel drops the lock of a process that was killed.
type podLocks struct {
	dirs layout.Dirs
	self holder
	// fresh is called when this process has come to have a pod, before anything is done to it.
	fresh func() error

	mu    sync.Mutex
	files map[pod.Key]*os.File // locked
	busy  map[pod.Key]bool     // those that a call works on
	idle  *sync.Cond           // one of busy is so no longer
}

// holder is what a pod's lock file says of the process that has the pod.
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

func newPodLocks(dirs layout.Dirs, command string) *podLocks {
	l := &podLocks{
		dirs: dirs, self: holder{Command: command, PID: os.Getpid()}, fresh: func() error { return nil },
		files: map[pod.Key]*os.File{}, busy: map[pod.Key]bool{},
	}
	l.idle = sync.NewCond(&l.mu)
	return l
}

// OwnedError says that another process has a pod that this one was asked to run or to end.
type OwnedError struct {
	Key pod.Key
	// Holder is the process, for people.
	Holder string
	// Serve: it is a serve, which keeps the pod as long as its manifest is there.
	Serve bool
}

func (e *OwnedError) Error() string { return fmt.Sprintf("pod %s is run by %s", e.Key, e.Holder) }

// LockError says that nobody can have a pod, as its lock is.
type LockError = reconcile.LockError

// Acquire implements reconcile.Owners. A pod whose file is not in its place any more, so that another process may have
// locked a new one, must be acquired anew.
func (l *podLocks) Acquire(key pod.Key) (other string, fresh bool, err error) {
	holder, fresh, err := l.acquire(key)
	if holder != nil {
		other = holder.String()
	}
	return other, fresh, err
}

// acquire is Acquire, with what is known of the other process; nil: none has the pod.
func (l *podLocks) acquire(key pod.Key) (other *holder, fresh bool, err error) {
	file := l.begin(key)
	defer l.end(key)
	if file != nil {
		here, err := sameFile(file, l.dirs.PodLock(key))
		if err != nil { // it may still be there
			return nil, false, fmt.Errorf("checking the lock of pod %s: %w", key, err)
		}
		if here {
			return nil, false, nil
		}
		l.drop(key)
	}
	file, other, err = l.lock(key)
	if err != nil {
		return nil, false, &LockError{Key: key, Err: err}
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

// begin waits until no other call works on the pod's lock and returns its file, if this process has the pod. No call
// works on files with mu, which those for other pods need.
func (l *podLocks) begin(key pod.Key) *os.File {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.busy[key] {
		l.idle.Wait()
	}
	l.busy[key] = true
	return l.files[key]
}

func (l *podLocks) end(key pod.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.busy, key)
	l.idle.Broadcast()
}

// drop lets the pod go. The file stays.
func (l *podLocks) drop(key pod.Key) {
	l.mu.Lock()
	file := l.files[key]
	delete(l.files, key)
	l.mu.Unlock()
	unlockFile(file)
}

// AcquireAll has this process own all of the pods, or none that it has not yet: then the error is an *OwnedError.
func (l *podLocks) AcquireAll(keys []pod.Key) error {
	var got []pod.Key
	for _, key := range keys {
		other, fresh, err := l.acquire(key)
		if fresh {
			got = append(got, key)
		}
		if err == nil && other != nil {
			err = &OwnedError{Key: key, Holder: other.String(), Serve: other.Command == ownerServe}
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

// acquireAll is AcquireAll for the keys of a map. It returns soon after ctx has ended, whatever hangs.
func acquireAll[T any](ctx context.Context, l *podLocks, pods map[pod.Key]T) error {
	keys := slices.SortedFunc(maps.Keys(pods), pod.Key.Compare)
	_, err := promptly(ctx, func() (struct{}, error) { return struct{}{}, l.AcquireAll(keys) })
	return err
}

// Release implements reconcile.Owners.
func (l *podLocks) Release(key pod.Key) {
	file := l.begin(key)
	defer l.end(key)
	if file == nil {
		return
	}
	// While it is locked: whoever opened it meanwhile sees that it is not there any more, and makes a new one.
	removeLock(file, l.dirs.PodLock(key))
	l.drop(key)
}

// Sweep removes the files of pods that no process has, which killed processes left.
func (l *podLocks) Sweep() error {
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
		if err := l.sweep(pod.Key{Namespace: namespace, Name: name}, filepath.Join(l.dirs.PodLocks(), e.Name())); err != nil {
			errs = append(errs, fmt.Errorf("opening a pod's lock: %w", err))
		}
	}
	return errors.Join(errs...)
}

func (l *podLocks) sweep(key pod.Key, path string) error {
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
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil { // else a process has the pod
		removeLock(f, path)
	}
	unlockFile(f)
	return nil
}

// removeLock removes a locked file, unless another one is in its place.
func removeLock(f *os.File, path string) {
	if here, err := sameFile(f, path); err == nil && here {
		_ = os.Remove(path)
	}
}

// lockTries is how often a file that was removed or replaced while it was being locked is tried again: a podrun that
// lets the pod go just then removes it once.
const lockTries = 100

// sayTries and sayDelay bound the wait for a process that has just locked a pod's file and not said in it yet who it is.
const (
	sayTries = 20
	sayDelay = 5 * time.Millisecond
)

var errUnsteady = errors.New("the file is replaced again and again")

// lock locks the pod's file and says in it who has it. file is nil when another process has it.
func (l *podLocks) lock(key pod.Key) (file *os.File, other *holder, err error) {
	path := l.dirs.PodLock(key)
	for try := range lockTries {
		f, err := openLock(path, os.O_CREATE)
		if errors.Is(err, fs.ErrNotExist) { // the directory is not there, or the file is gone again
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
			if other.Command == "" && try < sayTries { // it may be about to say who it is
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

// showKept has Kept see that the file's process has the pod, by a second lock beside the one that gives it the pod:
// of this kind it can be asked whether it is held without taking it, so that no reader is ever in an owner's way.
func showKept(f *os.File) {
	// Where the file system has no such locks, the pod is shown as one that nobody keeps, and is kept all the same.
	_ = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_RDLCK, Whence: io.SeekStart})
}

// Kept reports whether a process has the pod. known is false where that cannot be told, as in a run directory where
// no process has had a pod yet. Between the hands of two processes, as while serve restarts, nobody has it.
func Kept(dirs layout.Dirs, key pod.Key) (kept, known bool) {
	f, err := openLock(dirs.PodLock(key), 0)
	if errors.Is(err, fs.ErrNotExist) {
		_, err := os.Stat(dirs.PodLocks())
		return false, err == nil
	}
	if err != nil {
		return false, false
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock); err != nil {
		return false, false
	}
	return lock.Type != unix.F_UNLCK, true
}

// LastKept returns until when a serve that runs no more kept the pod, which no process keeps; the zero time if it was not a
// serve that had it last, or is not known.
func LastKept(dirs layout.Dirs, key pod.Key) time.Time {
	f, err := openLock(dirs.PodLock(key), 0)
	if err != nil {
		return time.Time{}
	}
	defer f.Close()
	at, alive := LastSeen(dirs)
	if alive || readHolder(f).Command != ownerServe {
		return time.Time{}
	}
	return at
}

// write says who has the pod. Where that cannot be written, as on a full disk, the lock holds all the same.
func (l *podLocks) write(f *os.File) {
	self := l.self
	self.Since = time.Now().UTC().Truncate(time.Second)
	text, err := json.Marshal(self)
	if err == nil && f.Truncate(0) == nil { // a killed process may have left a longer text
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
	// Explicitly, because a child between fork and exec still shares the open file.
	_ = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_UNLCK, Whence: io.SeekStart})
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
	f.Close()
}
