package containerlog

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/containerlog/cri"
	"podrun.io/podrun/internal/containerlog/orphangc"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

var (
	// errBusy: another process converts this instance at the moment.
	errBusy = errors.New("being converted by another process")
	// errRemoved: the instance has no raw files any more.
	errRemoved = errors.New("no raw log")
)

const (
	sliceSize = 256 << 10 // bytes that are read of one stream in one batch
	punchStep = 64 << 10
)

// streams are the streams of a container.
var streams = [...]cri.Stream{cri.Stdout, cri.Stderr}

// buffers are used by one batch at a time, so that many idle instances share them.
type buffers struct{ in, out []byte }

func newBuffers() *buffers { return &buffers{in: make([]byte, sliceSize)} }

// converter converts the raw files of one instance. It keeps no authoritative state in memory:
// every batch reads the checkpoint again under the lock. A converter must not be used by two
// goroutines; two converters of one instance may work at the same time.
type converter struct {
	disk     disk
	root     string // podrun's root directory, to which the pods of these logs belong
	rawDir   string
	logPath  string // where new entries are written
	rotation Rotation

	lock    *os.File // the lock file, which also contains the checkpoint
	log     *os.File // the open log, at logPath or under the name that another instance's converter gave it
	raw     [2]*os.File
	state   checkpoint
	punched [2]int64
	rotated bool  // a log was rotated; the caller resets it
	skipped int64 // bytes of output that were left out of the log
}

// newConverter returns a converter without opening or creating files; batch opens what it needs.
func newConverter(dirs layout.Dirs, inst pod.Instance, rotation Rotation) *converter {
	return &converter{
		disk:     realDisk{},
		root:     dirs.Root,
		rawDir:   rawDirOf(dirs, inst),
		logPath:  dirs.ContainerLog(inst.Key, inst.UID, inst.Container, inst.Attempt),
		rotation: rotation,
	}
}

// rawDirOf returns the directory of the instance's raw files. An instance that the former version
// started has a directory named by its attempt. Any other instance has a directory of its own until
// its exit is recorded, so that it never uses the former version's directory.
func rawDirOf(dirs layout.Dirs, inst pod.Instance) string {
	return sys.FirstPresent(dirs.RawLogs(inst)...)
}

// openConverter returns a converter whose checkpoint file is open. It fails with errRemoved if the
// instance has no raw log directory.
func openConverter(dirs layout.Dirs, inst pod.Instance, rotation Rotation) (*converter, error) {
	c := newConverter(dirs, inst, rotation)
	return c, c.open()
}

func (c *converter) open() error {
	var err error
	// trusted: a directory of podrun's own
	c.lock, err = os.OpenFile(filepath.Join(c.rawDir, "checkpoint"), os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		return errRemoved
	}
	return err
}

// rawSize returns the size of the larger raw file; -1 if there is none. Most containers write nothing
// at first, so no checkpoint file is created until there is output: that saves work while other
// containers start.
func (c *converter) rawSize() int64 {
	sizes := c.rawSizes()
	return max(sizes[cri.Stdout], sizes[cri.Stderr])
}

// rawSizes returns the sizes of the raw files; -1 of one that is not there.
func (c *converter) rawSizes() (sizes [2]int64) {
	for _, s := range streams {
		info, err := os.Lstat(c.rawPath(s))
		switch {
		case err == nil:
			sizes[s] = info.Size()
		case errors.Is(err, os.ErrNotExist):
			sizes[s] = -1
		}
	}
	return sizes
}

func (c *converter) close() {
	for _, f := range []*os.File{c.lock, c.log, c.raw[cri.Stdout], c.raw[cri.Stderr]} {
		f.Close() // does nothing without a file
	}
}

func (c *converter) rawPath(s cri.Stream) string { return rawPath(c.rawDir, s) }

func rawPath(rawDir string, s cri.Stream) string { return filepath.Join(rawDir, s.String()+".raw") }

// batch converts a slice of each stream; more reports whether there is more to convert. With last,
// the container writes no more, and a last line without a newline is converted too. It fails with
// errBusy, errRemoved or a file system error; then either nothing was converted, or what was converted
// is in the checkpoint.
func (c *converter) batch(b *buffers, last bool) (more bool, err error) {
	if c.lock == nil {
		if c.rawSize() <= 0 {
			return false, nil
		}
		if err := c.open(); err != nil {
			return false, err
		}
	}
	if err := tryLock(c.lock); err != nil {
		return false, err
	}
	defer unlock(c.lock)
	if err := c.load(); err != nil {
		return false, err
	}
	if err := c.rotate(); err != nil {
		return false, err
	}
	// Created before there is an entry, so that a silent container also has a log once its
	// converter is open.
	if err := c.openLog(); err != nil {
		return false, err
	}
	next := c.state
	b.out = b.out[:0]
	for _, s := range c.writeOrder() {
		moreOfStream, err := c.convert(b, s, &next, last)
		if err != nil {
			return false, err
		}
		more = more || moreOfStream
	}
	if len(b.out) == 0 {
		return more, nil
	}
	if _, err := c.disk.WriteAt(c.log, b.out, c.state.size); err != nil {
		// Readers should not see half an entry. If this fails, the next batch cuts it off.
		_ = c.disk.Truncate(c.log, c.state.size)
		return false, fmt.Errorf("writing log: %w", err)
	}
	next.size = c.state.size + int64(len(b.out))
	if err := c.save(next); err != nil {
		return false, err
	}
	c.punch()
	return more, nil
}

// load reads the checkpoint that the last converter, of this or another process, has left.
func (c *converter) load() error {
	if removed, err := unlinked(c.lock); err != nil || removed {
		return cmp.Or(err, errRemoved)
	}
	var file [2 * slotSize]byte
	n, err := c.lock.ReadAt(file[:], 0)
	if err != nil && err != io.EOF {
		return fmt.Errorf("reading checkpoint: %w", err)
	}
	if n == 0 && c.rawSize() < 0 {
		// The instance was converted and its files were removed before this process created a new
		// checkpoint file. The log must not be cut to that empty checkpoint.
		return errors.Join(c.disk.Remove(c.lock.Name()), errRemoved)
	}
	state, ok := decode(file[:n])
	if ok && state.seq == c.state.seq && c.log != nil {
		return c.alignLog()
	}
	if c.log != nil {
		c.log.Close()
		c.log = nil
	}
	c.state = state
	// The first checkpoint gives the file its full size, and nothing is punched before that. If
	// there is no valid checkpoint after that, the machine crashed.
	if !ok && (n == len(file) || c.firstData(cri.Stdout) > 0 || c.firstData(cri.Stderr) > 0) {
		return c.recover()
	}
	return c.alignLog()
}

// alignLog makes log and checkpoint agree. If the log was rotated or removed, the checkpoint must not
// refer to it any more: the next entries would be used for the ones it refers to.
func (c *converter) alignLog() error {
	recorded := c.state.size
	if err := c.truncateLog(); err != nil || c.state.size == recorded {
		return err
	}
	return c.save(c.state)
}

// truncateLog removes what the log has beyond the checkpoint. If the log is shorter than that, somebody
// truncated or removed it, and the conversion continues at its end.
func (c *converter) truncateLog() error {
	if c.log == nil {
		f, err := c.openRecorded()
		if err != nil {
			return fmt.Errorf("opening log: %w", err)
		}
		if f == nil {
			c.state.size, c.state.file = 0, 0
			return nil
		}
		c.log = f
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(c.log.Fd()), &st); err != nil {
		return fmt.Errorf("inspecting log: %w", err)
	}
	if st.Nlink == 0 {
		c.log.Close()
		c.log, c.state.size, c.state.file = nil, 0, 0
		return nil
	}
	c.state.file = st.Ino
	if st.Size > c.state.size {
		if err := c.disk.Truncate(c.log, c.state.size); err != nil {
			return fmt.Errorf("cutting log: %w", err)
		}
	}
	c.state.size = min(c.state.size, st.Size)
	return nil
}

// openLog creates the log if there is none, with the modes that Kubernetes gives it. A log that
// exists already belongs to another instance of the same attempt that left no checkpoint: it is
// renamed like a full log, and a converter that still writes to it continues under the new name.
// The checkpoint records the new log's inode before the first entry is written.
func (c *converter) openLog() error {
	if c.log != nil {
		return nil
	}
	dir, err := openLogDir(c.logPath, true)
	if err != nil {
		return fmt.Errorf("making log directory: %w", err)
	}
	defer dir.Close()
	orphangc.SetOwner(filepath.Dir(filepath.Dir(c.logPath)), c.root)
	if info, err := os.Lstat(c.logPath); err == nil && info.Size() > 0 {
		if err := c.renameLog(); err != nil {
			return err
		}
	}
	const flags = unix.O_CREAT | unix.O_RDWR | unix.O_NOFOLLOW | unix.O_CLOEXEC
	// trusted: a directory of podrun's own
	fd, err := unix.Openat(int(dir.Fd()), filepath.Base(c.logPath), flags, 0o640)
	if err != nil {
		return fmt.Errorf("making log: %w", &os.PathError{Op: "open", Path: c.logPath, Err: err})
	}
	f := os.NewFile(uintptr(fd), c.logPath)
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &os.PathError{Op: "open", Path: c.logPath, Err: sys.ErrNotRegular}
	}
	if err == nil {
		next := c.state
		next.size, next.file = 0, sys.Inode(info)
		err = c.save(next)
	}
	if err != nil {
		f.Close()
		return fmt.Errorf("making log: %w", err)
	}
	c.log = f
	return nil
}

// recover rebuilds a state without a checkpoint: raw output that was punched counts as converted,
// and the log's whole entries are kept. Some lines may be converted twice.
func (c *converter) recover() error {
	c.state.raw = [2]int64{c.firstData(cri.Stdout), c.firstData(cri.Stderr)}
	var err error
	if c.state.size, err = wholeLines(c.logPath); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("reading log: %w", err)
	}
	c.state.file = 0
	return c.truncateLog()
}

// wholeLines returns the length of a file up to the end of its last whole line. It reads backwards
// and buffers one block only.
func wholeLines(path string) (int64, error) {
	f, err := sys.OpenRegularAt(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	at, err := f.Seek(0, io.SeekEnd)
	block := make([]byte, 64<<10)
	for at > 0 && err == nil {
		n := min(at, int64(len(block)))
		at -= n
		if _, err = f.ReadAt(block[:n], at); err != nil {
			break
		}
		if i := bytes.LastIndexByte(block[:n], '\n'); i >= 0 {
			return at + int64(i) + 1, nil
		}
	}
	return 0, err
}

// firstData returns the offset of the first byte of a raw file that was not punched.
func (c *converter) firstData(s cri.Stream) int64 {
	if c.openRaw(s) != nil || c.raw[s] == nil {
		return 0
	}
	at, err := unix.Seek(int(c.raw[s].Fd()), 0, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) { // the file has no data at all
		at, _ = unix.Seek(int(c.raw[s].Fd()), 0, unix.SEEK_END)
	}
	return max(at, 0)
}

// writeOrder returns the streams, the one with the older last write first, so that times rise in the log
// when the conversion is late.
func (c *converter) writeOrder() [2]cri.Stream {
	var at [2]time.Time
	for _, s := range streams {
		if c.openRaw(s) == nil && c.raw[s] != nil {
			if st, err := c.raw[s].Stat(); err == nil {
				at[s] = st.ModTime()
			}
		}
	}
	if at[cri.Stderr].Before(at[cri.Stdout]) {
		return [2]cri.Stream{cri.Stderr, cri.Stdout}
	}
	return [2]cri.Stream{cri.Stdout, cri.Stderr}
}

// openRaw opens a stream's raw file. The stream stays nil while it has none, as stderr of a
// terminal never has.
func (c *converter) openRaw(s cri.Stream) error {
	if c.raw[s] != nil {
		return nil
	}
	f, err := sys.OpenRegularAt(c.rawPath(s))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("opening raw log: %w", err)
	}
	if err == nil {
		c.raw[s] = f
	}
	return nil
}

// convert appends the entries of one stream's next slice to b.out and advances next.
func (c *converter) convert(b *buffers, s cri.Stream, next *checkpoint, last bool) (more bool, err error) {
	if err := c.openRaw(s); err != nil || c.raw[s] == nil {
		return false, err
	}
	if err := c.skipBacklog(b, s, next); err != nil {
		return false, err
	}
	n, err := c.raw[s].ReadAt(b.in, next.raw[s])
	if err != nil && err != io.EOF {
		return false, fmt.Errorf("reading raw log: %w", err)
	}
	if n == 0 {
		return false, nil
	}
	// Entries have the time of reading, but output that waited unread was written no later than the
	// file's modification time.
	at := time.Now()
	if st, err := c.raw[s].Stat(); err == nil && st.ModTime().Before(at) {
		at = st.ModTime()
	}
	space := c.rotation.space(c.state.size + int64(len(b.out)))
	full, before := n == len(b.in), len(b.out)
	o := cri.EntryOptions{Stream: s, At: at, Last: last && !full, Space: space}
	out, used := cri.AppendEntries(b.out, b.in[:n], o)
	b.out = out
	next.raw[s] += int64(used)
	return full || len(out)-before >= space, nil
}

// save writes the next checkpoint.
func (c *converter) save(next checkpoint) error {
	next.seq++
	if _, err := c.disk.WriteAt(c.lock, next.encode(), next.slot()); err != nil {
		return fmt.Errorf("writing checkpoint: %w", err)
	}
	c.state = next
	return nil
}

// punch frees the raw output that is converted. If the file system cannot do that, the raw file
// stays whole until it is removed.
func (c *converter) punch() {
	for _, s := range streams {
		to := c.state.raw[s] / punchStep * punchStep
		if to > c.punched[s] && c.disk.Punch(c.rawPath(s), c.punched[s], to-c.punched[s]) == nil {
			c.punched[s] = to
		}
	}
}

// remove deletes the raw files, and the checkpoint last, so that a raw file never is without one.
// Their directory is removed when the exit is recorded.
func (c *converter) remove() error {
	if err := tryLock(c.lock); err != nil {
		return err
	}
	defer unlock(c.lock)
	for _, path := range []string{c.rawPath(cri.Stdout), c.rawPath(cri.Stderr), c.lock.Name()} {
		if err := c.disk.Remove(path); err != nil {
			return fmt.Errorf("removing raw log: %w", err)
		}
	}
	return nil
}
