package containerlog

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/containerlog/cri"
	"podrun.io/podrun/internal/containerlog/links"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

const (
	// tmpSuffix ends the name of a segment that is being compressed.
	tmpSuffix = ".tmp"
	// maxOutput ends the conversion of a stream's slice early, because an entry of an empty line is
	// about forty times as long as the line.
	maxOutput = 1 << 20
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
// most maxOutput.
func (r Rotation) space(size int64) int {
	if r.Size == 0 {
		return maxOutput
	}
	return int(min(maxOutput, max(0, r.Size-size)))
}

// rotate renames a full log when there is more output; the same batch then creates a new one. No
// process writes to a renamed log. If rotate is interrupted between its two steps, there is no log
// at logPath, and conversion continues in a new one.
func (c *converter) rotate() error {
	if c.log == nil || c.rotation.space(c.state.size) > 0 || !c.pending() {
		return nil
	}
	if c.isAt(c.logPath) { // otherwise another instance has renamed it already
		if err := c.renameLog(); err != nil {
			return err
		}
	}
	c.log.Close()
	c.log = nil
	next := c.state
	next.size, next.file = 0, 0
	return c.save(next)
}

// renameLog makes the log at logPath a segment.
func (c *converter) renameLog() error {
	log, dir, err := held(c.logPath)
	if err != nil {
		return fmt.Errorf("rotating a log: %w", err)
	}
	defer dir.Close()
	segment, err := cri.NextSegment(log, time.Now())
	if err != nil {
		return err
	}
	if err := c.disk.Rename(log, segment); err != nil {
		return fmt.Errorf("rotating a log: %w", err)
	}
	c.rotated = true
	return nil
}

// held opens the directory of a log and returns a path of the log that leads there until it is closed, whatever others
// rename meanwhile.
func held(log string) (path string, dir *os.File, err error) {
	dir, err = openLogDir(log, false)
	if err != nil {
		return "", nil, err
	}
	return filepath.Join(sys.FDPath(int(dir.Fd())), filepath.Base(log)), dir, nil
}

// isAt reports whether the open log is the file at path.
func (c *converter) isAt(path string) bool {
	there, err := os.Lstat(path)
	own, failed := c.log.Stat()
	return err == nil && failed == nil && os.SameFile(there, own)
}

// openRecorded opens the log that the checkpoint refers to, under whatever name it has; nil if it does
// not exist any more. An instance whose checkpoint refers to no log never opens one that another
// instance wrote.
func (c *converter) openRecorded() (*os.File, error) {
	if c.state.file == 0 && c.state.size == 0 {
		return nil, nil
	}
	log, dir, err := held(c.logPath)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) || isOfOthers(err) { // podrun writes no log there
			return nil, nil
		}
		return nil, err
	}
	defer dir.Close()
	paths := []string{log}
	if c.state.file != 0 {
		segments, err := cri.Segments(log)
		if err != nil {
			return nil, err
		}
		for _, s := range segments {
			paths = append(paths, s.Path)
		}
	}
	for _, path := range paths {
		f, err := sys.OpenRegular(filepath.Dir(path), filepath.Base(path), sys.NoLinks, os.O_RDWR)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, sys.ErrNotRegular) { // podrun writes no others
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
	for _, s := range streams {
		if c.openRaw(s) != nil || c.raw[s] == nil {
			continue
		}
		if st, err := c.raw[s].Stat(); err == nil && st.Size() > c.state.raw[s] {
			return true
		}
	}
	return false
}

// cleanSegments removes the oldest files of a log beyond keep, and compresses its segments except the
// newest, which a log collector may still be reading.
func cleanSegments(log string, keep int) error {
	log, dir, err := held(log)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening the directory of a log: %w", err)
	}
	defer dir.Close()
	segments, err := cri.Segments(log)
	if err != nil {
		return err
	}
	for ; len(segments) >= max(keep, 2); segments = segments[1:] {
		for _, suffix := range []string{"", cri.CompressedSuffix, cri.CompressedSuffix + tmpSuffix} {
			if err := (realDisk{}).Remove(segments[0].Path + suffix); err != nil {
				return fmt.Errorf("removing an old log: %w", err)
			}
		}
	}
	for _, s := range segments[:max(len(segments)-1, 0)] {
		if s.Compressed {
			continue
		}
		if err := compress(s.Path); err != nil && !errors.Is(err, os.ErrNotExist) { // removed meanwhile, with the pod
			return fmt.Errorf("compressing an old log: %w", err)
		}
	}
	return nil
}

// compress compresses a file and removes it, once the compressed file is complete and synced to disk. A
// file that an instance still writes to is left for the next call, and one that another process compresses to that
// process: the pod's owner may have changed meanwhile.
func compress(path string) error {
	in, err := sys.OpenRegularAt(path)
	if err != nil {
		return err
	}
	defer in.Close()
	if hasWriter(path) {
		return nil
	}
	if errors.Is(tryLock(in), errBusy) { // a file system that has no such locks is no reason
		return nil
	}
	if gone, err := unlinked(in); gone || err != nil {
		return err
	}
	st, err := in.Stat()
	if err != nil {
		return err
	}
	tmp := path + cri.CompressedSuffix + tmpSuffix
	err = compressTo(tmp, in, st)
	if err == nil {
		err = os.Rename(tmp, path+cri.CompressedSuffix)
	}
	if err != nil {
		return errors.Join(err, (realDisk{}).Remove(tmp))
	}
	return (realDisk{}).Remove(path)
}

func compressTo(path string, in io.Reader, like os.FileInfo) error {
	// One that is there, of a compression that was interrupted, may be anything, such as a FIFO without a reader.
	if err := (realDisk{}).Remove(path); err != nil {
		return err
	}
	const flags = os.O_CREATE | os.O_EXCL | os.O_WRONLY | unix.O_NONBLOCK
	out, err := os.OpenFile(path, flags, like.Mode().Perm()) // trusted: a directory of podrun's own
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

// RemoveLogs removes the logs of an instance that was removed, and those of all earlier attempts of its
// container, with the links to them.
func (t *Tailer) RemoveLogs(last pod.Instance) error {
	if err := links.RemoveUpTo(t.o.Dirs, last); err != nil {
		t.o.Log.Warn("removing the links to a container's old logs failed", "container", last.Container, "err", err)
	}
	log, dir, err := held(t.o.Dirs.ContainerLog(last.Key, last.UID, last.Container, last.Attempt))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case isOfOthers(err): // the container is removed all the same
		t.o.Log.Warn("the logs of a container stay: their directory is not podrun's",
			"container", last.Container, "err", err)
		return nil
	case err != nil:
		return fmt.Errorf("removing old logs: %w", err)
	}
	defer dir.Close()
	entries, err := os.ReadDir(filepath.Dir(log))
	if err != nil {
		return fmt.Errorf("removing old logs: %w", err)
	}
	for _, e := range entries {
		if attempt, ok := attemptOf(e.Name()); ok && attempt <= last.Attempt {
			if err := (realDisk{}).Remove(filepath.Join(filepath.Dir(log), e.Name())); err != nil {
				return fmt.Errorf("removing old logs: %w", err)
			}
		}
	}
	return nil
}

// attemptOf returns the attempt in the name of a log file; false if the name is not one of a log.
func attemptOf(name string) (attempt int, ok bool) {
	number, rest, _ := strings.Cut(name, ".")
	n, err := strconv.ParseUint(number, 10, 63)
	return int(n), err == nil && (rest == "log" || strings.HasPrefix(rest, "log."))
}

// queueCleaning makes Run clean the segments of a log that was rotated, or may have been.
func (t *Tailer) queueCleaning(log string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rotated[log] = true
	wake(t.cleaning)
}

// cleanRotated cleans the segments of rotated logs until ctx ends.
func (t *Tailer) cleanRotated(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.cleaning:
		}
		t.mu.Lock()
		due := t.rotated
		t.rotated = map[string]bool{}
		t.mu.Unlock()
		for log := range due {
			if err := cleanSegments(log, t.o.Rotation.Files); err != nil {
				t.o.Log.Warn("removing or compressing rotated logs failed", "file", log, "err", err)
			}
		}
	}
}
