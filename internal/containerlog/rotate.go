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

// Rotation says when a log is put away for a new one, and how many files are kept.
type Rotation struct {
	// Size is the bytes that a file may have before it is put away; an entry more may be in it. 0: any number.
	Size int64
	// Files is how many are kept of an instance's log, the one that is written to among them; at least 2.
	Files int
}

// space is how much more may be appended to a log of size bytes before it is put away, outLimit at most.
func (r Rotation) space(size int64) int {
	if r.Size == 0 {
		return outLimit
	}
	return int(min(outLimit, max(0, r.Size-size)))
}

// rotate puts a full log away once there is more to come, and the next batch makes a new one. Nobody writes
// to what was put away. Cut off between the two steps, there is no log, and its conversion goes on in a new
// one all the same.
func (c *converter) rotate() error {
	if c.log == nil || c.rotation.space(c.state.size) > 0 || !c.pending() {
		return nil
	}
	if c.isAt(c.logPath) { // else another instance has put it away
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

// putAway makes a part of the log that is there.
func (c *converter) putAway() error {
	put, err := partsOf(c.logPath)
	if err != nil {
		return err
	}
	if err := c.disk.Rename(c.logPath, partName(c.logPath, nextNumber(put), time.Now())); err != nil {
		return fmt.Errorf("putting a log away: %w", err)
	}
	c.rotated = true
	return nil
}

// isAt reports that the log that is written to is there.
func (c *converter) isAt(path string) bool {
	there, err := os.Lstat(path)
	own, failed := c.log.Stat()
	return err == nil && failed == nil && os.SameFile(there, own)
}

// openOwn opens the log that the checkpoint tells of, wherever it is; nil if it is gone. An instance without one
// never takes what another one has written for its own.
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

// pending reports that there is something that was not converted yet.
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

// groom removes the oldest files of a log beyond those that are kept, and compresses those that were put
// away but the newest, which whoever collects logs may still be reading.
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

// pack compresses a file. It goes only when the compressed one is whole and on the disk. One that an instance still
// writes to is left for the next time.
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
	return os.Chtimes(path, like.ModTime(), like.ModTime()) // when its last line was written
}

// Drop removes the logs of an instance that is gone, and of all that its container had before it.
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

// attemptOf tells from a file's name of which instance it is a log.
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

// rotated has a log groomed that was rotated.
func (t *Tailer) rotated(log string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.full[log] = true
	select {
	case t.put <- struct{}{}:
	default:
	}
}

// groomAll grooms what is rotated until ctx ends.
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
				t.log.Warn("old logs take more space than they need", "file", log, "why", err)
			}
		}
	}
}
