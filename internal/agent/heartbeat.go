package agent

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
)

// heartbeat is how often a running podrun updates the time of its sighting file.
const heartbeat = 10 * time.Second

// sighting is the file by which other processes see whether the statuses are kept up to date, and
// until when they were. A process that keeps them up to date holds a lock on the file, which serve
// and once share, and updates the file's time. The kernel releases the lock of a process that was
// killed.
type sighting struct{ file *os.File }

func beginSighting(dirs layout.Dirs) (*sighting, error) {
	if err := os.MkdirAll(dirs.Run, layout.ModePassable); err != nil {
		return nil, fmt.Errorf("creating the run directory: %w", err)
	}
	f, err := os.OpenFile(dirs.StatusFiles().Seen(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("marking statuses as up to date: %w", err)
	}
	s := &sighting{f}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{
		Type:   unix.F_RDLCK,
		Whence: io.SeekStart,
	}); err != nil {
		f.Close()
		return nil, fmt.Errorf("marking statuses as up to date: %w", err)
	}
	s.beat()
	return s, nil
}

func (s *sighting) beat() {
	now := time.Now()
	_ = os.Chtimes(s.file.Name(), now, now) // a time that is too old does no harm
}

// keep updates the file's time until ctx ends.
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

// end updates the file's time once more and releases the lock.
func (s *sighting) end() {
	s.beat()
	s.file.Close()
}

// LastSeen returns until when the statuses were kept up to date, and whether they still are. The
// time is zero if podrun has not run since the boot of the machine.
func LastSeen(dirs layout.Dirs) (at time.Time, alive bool) {
	f, err := os.Open(dirs.StatusFiles().Seen())
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
