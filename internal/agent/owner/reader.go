package owner

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
)

// Reader reports which processes own pods, for the commands that show pods. It takes no lock that an
// owner could have to wait for.
type Reader struct{ Dirs layout.Dirs }

// Kept reports whether a process owns the pod. known is false if that cannot be found out, for
// example in a run directory where no process has owned a pod yet. While ownership passes from one
// process to another, as in a restart of serve, no process owns the pod.
func (r Reader) Kept(key pod.Key) (kept, known bool) {
	f, err := openLock(r.Dirs.PodLock(key), 0)
	if errors.Is(err, fs.ErrNotExist) {
		_, err := os.Stat(r.Dirs.PodLocks())
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

// LastKept returns until when the last serve owned the pod, if no process owns it now and that
// serve has ended. It returns the zero time if the last owner was not a serve, or is not known.
func (r Reader) LastKept(key pod.Key) time.Time {
	f, err := openLock(r.Dirs.PodLock(key), 0)
	if err != nil {
		return time.Time{}
	}
	defer f.Close()
	at, alive := r.LastSeen()
	if alive || readHolder(f).Command != Serve {
		return time.Time{}
	}
	return at
}

// LastSeen returns until when the statuses were kept up to date, and whether they still are. The
// time is zero if podrun has not run since the boot of the machine. If the user may not read that, they count as kept
// up to date: nothing is known against it.
func (r Reader) LastSeen() (at time.Time, alive bool) {
	f, err := os.Open(r.Dirs.StatusFiles().Seen())
	if err != nil {
		return time.Time{}, errors.Is(err, fs.ErrPermission)
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock); err == nil && lock.Type != unix.F_UNLCK {
		return time.Now(), true
	}
	info, err := f.Stat()
	if err != nil {
		return time.Time{}, false
	}
	return info.ModTime(), false
}

// JustBegun reports that a serve started less than ago before now, so that it may not own its pods
// yet.
func (r Reader) JustBegun(ago time.Duration) bool {
	info, err := os.Stat(serveLock(r.Dirs))
	return err == nil && time.Since(info.ModTime()) < ago
}
