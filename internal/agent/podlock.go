package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
)

// podLocks implement reconcile.Owners among all processes of a run directory, by a file for each pod that is locked
// as long as a process has the pod. The kernel drops the lock of a process that was killed.
type podLocks struct {
	dirs layout.Dirs
	self holder
	// fresh is called when this process has come to have a pod, before anything is done to it.
	fresh func() error

	mu    sync.Mutex
	files map[pod.Key]*os.File
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
	return &podLocks{
		dirs: dirs, self: holder{Command: command, PID: os.Getpid()}, fresh: func() error { return nil },
		files: map[pod.Key]*os.File{},
	}
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

// Acquire implements reconcile.Owners.
func (l *podLocks) Acquire(key pod.Key) (other string, fresh bool, err error) {
	holder, fresh, err := l.acquire(key)
	if holder != nil {
		other = holder.String()
	}
	return other, fresh, err
}

// acquire is Acquire, with what is known of the other process; nil: none has the pod.
func (l *podLocks) acquire(key pod.Key) (other *holder, fresh bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.files[key] != nil {
		return nil, false, nil
	}
	file, other, err := l.lock(key)
	if err != nil {
		return nil, false, fmt.Errorf("locking pod %s: %w", key, err)
	}
	if file == nil {
		return other, false, nil
	}
	if err := l.fresh(); err != nil {
		file.Close()
		return nil, false, err
	}
	l.files[key] = file
	return nil, true, nil
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

// Release implements reconcile.Owners.
func (l *podLocks) Release(key pod.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	file := l.files[key]
	if file == nil {
		return
	}
	delete(l.files, key)
	// While it is locked: whoever opened it meanwhile sees that it is not there any more, and makes a new one.
	if here, err := sameFile(file, l.dirs.PodLock(key)); err == nil && here {
		_ = os.Remove(l.dirs.PodLock(key))
	}
	unlockFile(file)
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
	l.mu.Lock() // this process makes none meanwhile
	defer l.mu.Unlock()
	for _, e := range entries {
		path := filepath.Join(l.dirs.PodLocks(), e.Name())
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("opening a pod's lock: %w", err)
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil { // else a process has the pod
			if here, err := sameFile(f, path); err == nil && here {
				_ = os.Remove(path)
			}
		}
		unlockFile(f)
	}
	return nil
}

// lock locks the pod's file and says in it who has it. file is nil when another process has it.
func (l *podLocks) lock(key pod.Key) (file *os.File, other *holder, err error) {
	path := l.dirs.PodLock(key)
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if errors.Is(err, fs.ErrNotExist) {
			if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
				continue
			}
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
			defer f.Close()
			return nil, new(readHolder(f)), nil
		case err != nil:
			f.Close()
			return nil, nil, &os.PathError{Op: "flock", Path: path, Err: err}
		}
		here, err := sameFile(f, path)
		if err != nil || !here {
			unlockFile(f)
			if err != nil {
				return nil, nil, err
			}
			continue // its last owner has just removed it
		}
		showKept(f)
		l.write(f)
		return f, nil, nil
	}
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
	f, err := os.Open(dirs.PodLock(key))
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

// write says who has the pod. Where that cannot be written, as on a full disk, the lock holds all the same.
func (l *podLocks) write(f *os.File) {
	self := l.self
	self.Since = time.Now().UTC().Truncate(time.Second)
	text, err := json.Marshal(self)
	if err == nil && f.Truncate(0) == nil {
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
