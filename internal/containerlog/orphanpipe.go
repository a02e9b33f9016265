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

	"podrun.io/podrun/internal/sys"
)

// The shim gives up a stream of a container's for good when it cannot write, as on a full disk. The container
// would then hang as soon as its pipe is full. So podrun looks for that, and passes on what is in the pipe
// itself from then on. What the shim had read and could not write is lost, 32 KiB at most; nothing else.
// A terminal's output cannot be had that way.

// spaceToCopy is how much has to be free before something is taken from a pipe: what was taken and cannot be
// written would be lost with podrun.
const spaceToCopy = 256 << 10

// orphan is a stream that nobody passes on: the pipe, and the raw file that it belongs to.
type orphan struct {
	pipe, raw *os.File
	space     func(raw *os.File) bool // tests fill the disk
}

// orphaned returns the stream of the container whose first process is pid, if its shim has given it up.
func orphaned(rawDir string, s stream, pid int) (*orphan, error) {
	path := rawPath(rawDir, s)
	file, err := os.Lstat(path)
	if err != nil || hasWriter(path) {
		return nil, nil
	}
	link, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, int(s)+1))
	if err != nil || !strings.HasPrefix(link, "pipe:") {
		return nil, nil // it has ended, or writes elsewhere
	}
	shim, err := sys.Parent(pid)
	if err != nil {
		return nil, nil
	}
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", shim))
	if err != nil {
		return nil, err
	}
	end := ""
	for _, fd := range fds {
		if open, err := os.Stat(fd); err == nil && os.SameFile(open, file) { // trusted: it is only looked at
			return nil, nil // where files cannot be leased, hasWriter does not know
		}
		if name, err := os.Readlink(fd); err == nil && name == link {
			end = fd
		}
	}
	if end == "" {
		return nil, nil
	}
	pipe, err := os.OpenFile(end, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("opening a container's pipe: %w", err)
	}
	raw, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		pipe.Close()
		return nil, fmt.Errorf("opening a raw log: %w", err)
	}
	return &orphan{pipe: pipe, raw: raw, space: hasSpace}, nil
}

// pass passes the stream on until its writers have closed it or ctx ends. What it leaves is still in the pipe.
func (o *orphan) pass(ctx context.Context, log *slog.Logger) error {
	defer o.raw.Close()
	defer o.pipe.Close()
	defer context.AfterFunc(ctx, func() { _ = o.pipe.SetReadDeadline(time.Now()) })()
	buf := make([]byte, 16<<10)
	for ctx.Err() == nil {
		if err := o.await(ctx, log); err != nil {
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

// await returns when there is space for what is taken next. Nothing else fails meanwhile, so that it has to say so.
func (o *orphan) await(ctx context.Context, log *slog.Logger) error {
	if o.space(o.raw) {
		return nil
	}
	log.Warn("a container's output waits for space on the disk, and the container does too when its pipe is full")
	for !o.space(o.raw) {
		if err := sleep(ctx, recheck); err != nil {
			return err
		}
	}
	log.Info("there is space for a container's output again")
	return nil
}

// hasSpace reports that there is space for what is taken next.
func hasSpace(raw *os.File) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(int(raw.Fd()), &st) != nil || st.Bavail*uint64(st.Bsize) > spaceToCopy
}

// write tries again as long as there is no space.
func (o *orphan) write(ctx context.Context, text []byte) error {
	for len(text) > 0 {
		n, err := o.raw.Write(text)
		text = text[n:]
		if err != nil && !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
			return err
		}
		if len(text) > 0 {
			if err := sleep(ctx, recheck); err != nil {
				return err
			}
		}
	}
	return nil
}

// rescue passes on what the shim of an instance has given up, until ctx ends.
func (r *batch) rescue(ctx context.Context, t *tail) {
	r.tailer.mu.Lock()
	pid := r.tailer.followed[t.inst]
	r.tailer.mu.Unlock()
	if pid <= 0 {
		return
	}
	for _, s := range []stream{stdout, stderr} {
		log := r.tailer.log.With("pod", t.inst.Key, "container", t.inst.Container, "attempt", t.inst.Attempt, "stream", s.String())
		o, err := orphaned(t.conv.rawDir, s, pid)
		if err != nil {
			log.Warn("a container's output is not passed on", "why", err)
		}
		if o == nil {
			continue
		}
		log.Warn("the shim has given up a container's output, as when the disk was full; passing it on from here")
		r.passing.Go(func() {
			if err := o.pass(ctx, log); err != nil && ctx.Err() == nil {
				log.Warn("a container's output is not passed on any more", "why", err)
			}
		})
	}
}
