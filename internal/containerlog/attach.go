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

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/containerlog/cri"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/watch"
)

// recheck is the time between two checks of files that are not watched.
const recheck = 40 * time.Millisecond

// Live delivers the output of a running instance as the container writes it. It reads the raw files
// and delivers bytes rather than whole lines, so that a prompt is visible; it does not depend on
// the conversion of the output.
type Live struct {
	rawDir  string
	streams [2]*liveStream // nil: the stream has no raw file
}

// liveStream is one raw file, which is read without the container's cooperation. A shared lock on
// the file asks converters not to free what has not been delivered yet.
type liveStream struct {
	raw *os.File
	at  int64
}

// OpenLive opens an instance's output for delivery from now on; earlier output is not delivered. An
// instance that has ended yields no output. The caller must call Close.
func OpenLive(dirs layout.Dirs, inst pod.Instance) (*Live, error) {
	l := &Live{rawDir: rawDirOf(dirs, inst)}
	for _, s := range streams {
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

// Close closes the raw files and so releases their locks.
func (l *Live) Close() {
	for _, s := range l.streams {
		if s != nil {
			s.raw.Close()
		}
	}
}

func (s *liveStream) begin() (err error) {
	if err := flock(s.raw, unix.LOCK_SH); err != nil {
		return err
	}
	s.at, err = s.raw.Seek(0, io.SeekEnd)
	return err
}

// Copy delivers the output to out and errOut until the instance has ended and all its output is
// delivered, or until ctx ends.
func (l *Live) Copy(ctx context.Context, out, errOut io.Writer, log *slog.Logger) error {
	w := watch.New(log)
	for s, open := range l.streams {
		if open != nil {
			_ = w.Add(rawPath(l.rawDir, cri.Stream(s))) // before Run, Add only records the path
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
		// Checked before reading: all output of an ended instance is then in the files.
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

// deliver delivers all that the stream has now.
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
			return fmt.Errorf("delivering a container's output: %w", err)
		}
	}
	return nil
}

// freed returns how many bytes from the current offset on were freed before they were delivered. It
// is called after reading: a file is freed from its start, so if nothing from the offset on is
// freed now, the bytes just read were what the container wrote.
func (s *liveStream) freed() int64 {
	data, err := unix.Seek(int(s.raw.Fd()), s.at, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) { // all of it is freed
		data, err = s.raw.Seek(0, io.SeekEnd)
	}
	if err != nil {
		return 0 // the file system cannot punch holes
	}
	return data - s.at
}
