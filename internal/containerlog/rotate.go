package containerlog

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

// Rotation configures when a log is rotated and how many files are kept.
type Rotation struct {
	// Size is how many bytes a log may have before it is rotated; the file may exceed it by one
	// entry. 0: no limit.
	Size int64
	// Files is how many files of an instance's log are kept, including the current one; at least 2.
	Files int
}

// space returns how many more bytes may be appended to a log of size bytes before it is rotated, at
// most outLimit.
func (r Rotation) space(size int64) int {
	if r.Size == 0 {
		return outLimit
	}
	return int(min(outLimit, max(0, r.Size-size)))
}

// rotate renames a full log when there is more output; the same batch then creates a new one. No
// process writes to a renamed log. If rotate is interrupted between its two steps, there is no log
// at logPath, and conversion continues in a new one.
func (c *converter) rotate() error {
	if c.log == nil || c.rotation.space(c.state.size) > 0 || !c.pending() {
		return nil
	}
	if c.isAt(c.logPath) { // otherwise another instance has renamed it already
		if err := c.putAway(); err != nil {
			return err
		}
	}
	c.log.Close()
	c.log = nil
	next := c.state
	next.size, next.file = 0, 0
	return c.save(next)
}

// putAway renames the log at logPath to a numbered part.
func (c *converter) putAway() error {
	put, err := partsOf(c.logPath)
	if err != nil {
		return err
	}
	if err := c.disk.Rename(c.logPath, partName(c.logPath, nextNumber(put), time.Now())); err != nil {
		return fmt.Errorf("rotating a log: %w", err)
	}
	c.rotated = true
	return nil
}

// isAt reports whether the open log is the file at path.
func (c *converter) isAt(path string) bool {
	there, err := os.Lstat(path)
	own, failed := c.log.Stat()
	return err == nil && failed == nil && os.SameFile(there, own)
}

// openOwn opens the log that the checkpoint refers to, under whatever name it has; nil if it does
// not exist any more. An instance whose checkpoint refers to no log never opens one that another
// instance wrote.
func (c *converter) openOwn() (*os.File, error) {
	if c.state.file == 0 && c.state.size == 0 {
		return nil, nil
	}
	paths := []string{c.logPath}
	if c.state.file != 0 {
		put, err := partsOf(c.logPath)
		if err != nil {
			return nil, err
		}
		for _, p := range put {
			paths = append(paths, p.path)
		}
	}
	for _, path := range paths {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		info, err := f.Stat()
		if err == nil && (c.state.file == 0 || sys.Inode(info) == c.state.file) {
			return f, nil
		}
		f.Close()
	}
	return nil, nil
}

// pending reports whether there is output that is not converted yet.
func (c *converter) pending() bool {
	for _, s := range []stream{stdout, stderr} {
		if c.openRaw(s) != nil || c.raw[s] == nil {
			continue
		}
		if st, err := c.raw[s].Stat(); err == nil && st.Size() > c.state.raw[s] {
			return true
		}
	}
	return false
}

// groom removes the oldest files of a log beyond keep, and compresses the rotated ones except the
// newest, which a log collector may still be reading.
func groom(log string, keep int) error {
	put, err := partsOf(log)
	if err != nil {
		return err
	}
	for ; len(put) >= max(keep, 2); put = put[1:] {
		for _, name := range []string{put[0].path, put[0].path + packed, put[0].path + packed + packing} {
			if err := (realDisk{}).Remove(name); err != nil {
				return fmt.Errorf("removing an old log: %w", err)
			}
		}
	}
	for _, p := range put[:max(len(put)-1, 0)] {
		if p.packed {
			continue
		}
		if err := pack(p.path); err != nil {
			return fmt.Errorf("compressing an old log: %w", err)
		}
	}
	return nil
}

// pack compresses a file and removes it, once the compressed file is complete and synced to disk. A
// file that an instance still writes to is left for the next call.
func pack(path string) error {
	in, err := sys.OpenRegularAt(path)
	if err != nil {
		return err
	}
	defer in.Close()
	if hasWriter(path) {
		return nil
	}
	st, err := in.Stat()
	if err != nil {
		return err
	}
	half := path + packed + packing
	err = packInto(half, in, st)
	if err == nil {
		err = os.Rename(half, path+packed)
	}
	if err != nil {
		return errors.Join(err, (realDisk{}).Remove(half))
	}
	return (realDisk{}).Remove(path)
}

func packInto(path string, in io.Reader, like os.FileInfo) error {
	out, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, like.Mode().Perm())
	if err != nil {
		return err
	}
	z, err := gzip.NewWriterLevel(out, gzip.BestSpeed)
	if err == nil {
		_, err = io.Copy(z, in)
		err = errors.Join(err, z.Close())
	}
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	return os.Chtimes(path, like.ModTime(), like.ModTime()) // the time of its last entry
}

// Drop removes the logs of an instance that was removed, and those of all earlier attempts of its
// container.
func (t *Tailer) Drop(last pod.Instance) error {
	dir := filepath.Dir(t.dirs.ContainerLog(last.Key, last.UID, last.Container, last.Attempt))
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing old logs: %w", err)
	}
	for _, e := range entries {
		if attempt, ok := attemptOf(e.Name()); ok && attempt <= last.Attempt {
			if err := (realDisk{}).Remove(filepath.Join(dir, e.Name())); err != nil {
				return fmt.Errorf("removing old logs: %w", err)
			}
		}
	}
	return nil
}

// attemptOf returns the attempt in the name of a log file; false if the name is not one of a log.
func attemptOf(name string) (attempt int, ok bool) {
	number, rest, _ := strings.Cut(name, ".")
	if rest != "log" && !strings.HasPrefix(rest, "log.") || len(number) == 0 || len(number) > 18 {
		return 0, false
	}
	for _, digit := range number {
		if digit < '0' || digit > '9' {
			return 0, false
		}
		attempt = 10*attempt + int(digit-'0')
	}
	return attempt, true
}

// rotated queues a rotated log for grooming.
func (t *Tailer) rotated(log string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.full[log] = true
	select {
	case t.put <- struct{}{}:
	default:
	}
}

// groomAll grooms rotated logs until ctx ends.
func (t *Tailer) groomAll(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.put:
		}
		t.mu.Lock()
		due := t.full
		t.full = map[string]bool{}
		t.mu.Unlock()
		for log := range due {
			if err := groom(log, t.rotation.Files); err != nil {
				t.log.Warn("removing or compressing rotated logs failed", "file", log, "err", err)
			}
		}
	}
}
