package containerlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/containerlog/cri"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/shortage"
)

// The shim stops copying a container's stream for good when a write fails, as on a full disk. The
// container would then hang as soon as its pipe is full. So podrun looks for such pipes and copies
// their output itself from then on. Only what the shim had read and could not write is lost, at
// most 32 KiB. The output of a terminal cannot be rescued in this way.

// spaceToCopy is how many bytes must be free before output is read from a pipe: output that was
// read and cannot be written would be lost if podrun ended.
const spaceToCopy = 256 << 10

// orphan is a stream that no process copies: the pipe, and the raw file that it belongs to.
type orphan struct {
	pipe, raw *os.File
	space     func(raw *os.File) bool // tests simulate a full disk
}

// orphanOf returns the stream of the container whose first process is pid, if its shim has stopped
// copying it; otherwise nil.
func orphanOf(rawDir string, s cri.Stream, pid int) (*orphan, error) {
	path := rawPath(rawDir, s)
	file, err := os.Lstat(path)
	if err != nil || hasWriter(path) {
		return nil, nil
	}
	link, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, int(s)+1))
	if err != nil || !strings.HasPrefix(link, "pipe:") {
		return nil, nil // the process has ended, or writes elsewhere
	}
	shim, err := sys.Parent(pid)
	if err != nil {
		return nil, nil
	}
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", shim))
	if err != nil {
		return nil, err
	}
	fdPath := ""
	for _, fd := range fds {
		if open, err := os.Stat(fd); err == nil && os.SameFile(open, file) { // trusted: it is only inspected
			return nil, nil // the shim still writes; hasWriter cannot see that on a file system without leases
		}
		if name, err := os.Readlink(fd); err == nil && name == link {
			fdPath = fd
		}
	}
	if fdPath == "" {
		return nil, nil
	}
	// trusted: a pipe of a container's, without waiting
	pipe, err := os.OpenFile(fdPath, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("opening a container's pipe: %w", err)
	}
	raw, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0) // trusted: a directory of podrun's own
	if err != nil {
		pipe.Close()
		return nil, fmt.Errorf("opening a raw log: %w", err)
	}
	return &orphan{pipe: pipe, raw: raw, space: hasSpace}, nil
}

// copy copies the stream until its writers have closed it or ctx ends. Output that was not copied
// is still in the pipe.
func (o *orphan) copy(ctx context.Context, log *slog.Logger) error {
	defer o.raw.Close()
	defer o.pipe.Close()
	defer context.AfterFunc(ctx, func() { _ = o.pipe.SetReadDeadline(time.Now()) })()
	buf := make([]byte, 16<<10)
	for ctx.Err() == nil {
		if err := o.awaitSpace(ctx, log); err != nil {
			return err
		}
		n, err := o.pipe.Read(buf)
		if err := o.write(ctx, buf[:n]); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return ctx.Err()
}

// awaitSpace returns when there is space for the next read. It logs the wait, because nothing else fails
// meanwhile.
func (o *orphan) awaitSpace(ctx context.Context, log *slog.Logger) error {
	if o.space(o.raw) {
		return nil
	}
	log.Warn("container output waits for free disk space; the container blocks when its pipe is full")
	for !o.space(o.raw) {
		if err := sys.Sleep(ctx, recheck); err != nil {
			return err
		}
	}
	log.Info("container output continues, there is free disk space again")
	return nil
}

// hasSpace reports whether there is space for the next read.
func hasSpace(raw *os.File) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(int(raw.Fd()), &st) != nil || st.Bavail*uint64(st.Bsize) > spaceToCopy
}

// write writes text, and retries while there is no space.
func (o *orphan) write(ctx context.Context, text []byte) error {
	for len(text) > 0 {
		n, err := o.raw.Write(text)
		text = text[n:]
		if err != nil && !shortage.OfDisk(err) {
			return err
		}
		if len(text) > 0 {
			if err := sys.Sleep(ctx, recheck); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyOrphans copies the streams that the shim of an instance has stopped copying, until ctx ends.
func (r *scheduler) copyOrphans(ctx context.Context, i *instance) {
	r.tailer.mu.Lock()
	pid := r.tailer.followed[i.inst]
	r.tailer.mu.Unlock()
	if pid <= 0 {
		return
	}
	for _, s := range streams {
		log := i.log.With("stream", s.String())
		o, err := orphanOf(i.conv.rawDir, s, pid)
		if err != nil {
			log.Warn("copying container output from its pipe failed", "err", err)
		}
		if o == nil {
			continue
		}
		log.Warn("the shim has given up a container's output, as on a full disk; podrun copies it now")
		r.copying.Go(func() {
			if err := o.copy(ctx, log); err != nil && ctx.Err() == nil {
				log.Warn("copying container output from its pipe stopped", "err", err)
			}
		})
	}
}
