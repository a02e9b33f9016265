package containerlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/watch"
)

// Live is what a running instance writes, as it comes: no lines, so that a prompt is seen, and whether or
// not somebody converts it.
type Live struct {
	rawDir  string
	streams [2]*liveStream // nil: not there
}

// liveStream is a raw file that is read behind the container's back. A lock on it asks converters not to
// free what has not been delivered.
type liveStream struct {
	raw *os.File
	at  int64
}

// OpenLive begins with what the instance writes from now on. One that has ended has nothing to say.
func OpenLive(dirs layout.Dirs, inst pod.Instance) (*Live, error) {
	l := &Live{rawDir: rawDirOf(dirs, inst)}
	for _, s := range []stream{stdout, stderr} {
		raw, err := sys.OpenRegularAt(rawPath(l.rawDir, s))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			l.streams[s] = &liveStream{raw: raw}
			err = l.streams[s].begin()
		}
		if err != nil {
			l.Close()
			return nil, fmt.Errorf("opening a container's output: %w", err)
		}
	}
	return l, nil
}

// Close ends the delivery.
func (l *Live) Close() {
	for _, s := range l.streams {
		if s != nil {
			s.raw.Close()
		}
	}
}

func (s *liveStream) begin() (err error) {
	if err := lockShared(s.raw); err != nil {
		return err
	}
	s.at, err = s.raw.Seek(0, io.SeekEnd)
	return err
}

// Copy delivers until the instance has ended and all was delivered, or ctx ends.
func (l *Live) Copy(ctx context.Context, out, errOut io.Writer, log *slog.Logger) error {
	w := watch.New(log)
	for s, open := range l.streams {
		if open != nil {
			_ = w.Add(rawPath(l.rawDir, stream(s))) // before Run it only takes note
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() { _ = w.Run(ctx) })
	ticker := time.NewTicker(recheck)
	defer ticker.Stop()
	buf := make([]byte, 32<<10)
	for {
		// Asked first: what an ended instance wrote is then all there.
		ended := ended(l.rawDir)
		for s, to := range []io.Writer{out, errOut} {
			if err := l.streams[s].deliver(ctx, to, errOut, buf); err != nil {
				return err
			}
		}
		if ended {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.Events():
		case <-ticker.C:
		}
	}
}

// deliver delivers all there is.
func (s *liveStream) deliver(ctx context.Context, to, errOut io.Writer, buf []byte) error {
	for s != nil && ctx.Err() == nil {
		n, err := s.raw.ReadAt(buf, s.at)
		if n == 0 && (err == nil || errors.Is(err, io.EOF)) {
			return nil
		}
		if n == 0 {
			return fmt.Errorf("reading a container's output: %w", err)
		}
		if lost := s.freed(); lost > 0 {
			s.at += lost
			fmt.Fprintf(errOut, "\r\n[%d bytes were not read in time; they are in the log]\r\n", lost)
			continue
		}
		s.at += int64(n)
		if _, err := to.Write(buf[:n]); err != nil {
			return fmt.Errorf("passing a container's output on: %w", err)
		}
	}
	return nil
}

// freed is how many bytes from here on have been freed, though they had not been delivered. Asked after
// reading: what is freed begins at the file's start, so what was read is then what was written.
func (s *liveStream) freed() int64 {
	data, err := unix.Seek(int(s.raw.Fd()), s.at, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) { // all of it
		data, err = s.raw.Seek(0, io.SeekEnd)
	}
	if err != nil {
		return 0 // a file system that frees nothing
	}
	return data - s.at
}
