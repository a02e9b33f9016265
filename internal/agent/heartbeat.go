package agent

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/layout"
)

// heartbeat is how often a running podrun says that it keeps statuses up to date.
const heartbeat = 10 * time.Second

// sighting is the file by which others tell whether statuses are kept up to date, and until when they were:
// who keeps them holds a lock of it, shared by serve and once, and sets its time. The kernel drops the lock of
// a process that was killed.
type sighting struct{ file *os.File }

func beginSighting(dirs layout.Dirs) (*sighting, error) {
	if err := os.MkdirAll(dirs.Run, layout.ModePassable); err != nil {
		return nil, fmt.Errorf("making the run directory: %w", err)
	}
	f, err := os.OpenFile(dirs.Seen(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("saying that statuses are kept: %w", err)
	}
	s := &sighting{f}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_RDLCK, Whence: io.SeekStart}); err != nil {
		f.Close()
		return nil, fmt.Errorf("saying that statuses are kept: %w", err)
	}
	s.beat()
	return s, nil
}

func (s *sighting) beat() {
	now := time.Now()
	_ = os.Chtimes(s.file.Name(), now, now) // a sight that looks older than it is, is no harm
}

// keep says so until ctx ends.
func (s *sighting) keep(ctx context.Context) {
	every := time.NewTicker(heartbeat)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			s.beat()
		}
	}
}

// end says that statuses are kept no longer.
func (s *sighting) end() {
	s.beat()
	s.file.Close()
}

// LastSeen returns until when statuses were kept up to date, and whether they still are. The time is zero
// where podrun never ran since the machine was started.
func LastSeen(dirs layout.Dirs) (at time.Time, alive bool) {
	f, err := os.Open(dirs.Seen())
	if err != nil {
		return time.Time{}, false
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
