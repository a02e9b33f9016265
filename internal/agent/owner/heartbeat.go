package owner

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/sys/own"
)

// beatEvery is how often a running podrun updates the time of its file.
const beatEvery = 10 * time.Second

// Heartbeat is the file by which other processes see whether the statuses are kept up to date, and
// until when they were. A process that keeps them up to date holds a lock on the file, which serve
// and once share, and updates the file's time. The kernel releases the lock of a process that was
// killed.
type Heartbeat struct{ file *os.File }

// StartHeartbeat marks the statuses as up to date from now on.
func StartHeartbeat(dirs layout.Dirs) (*Heartbeat, error) {
	if err := own.Mkdir(dirs.Run, layout.ModePassable); err != nil {
		return nil, fmt.Errorf("creating the run directory: %w", err)
	}
	f, err := os.OpenFile(dirs.StatusFiles().Seen(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("marking statuses as up to date: %w", err)
	}
	s := &Heartbeat{f}
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

func (s *Heartbeat) beat() {
	now := time.Now()
	_ = os.Chtimes(s.file.Name(), now, now) // a time that is too old does no harm
}

// Run updates the file's time until ctx ends.
func (s *Heartbeat) Run(ctx context.Context) {
	every := time.NewTicker(beatEvery)
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

// Stop updates the file's time once more and releases the lock.
func (s *Heartbeat) Stop() {
	s.beat()
	s.file.Close()
}
