package containerlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

var (
	// errBusy: another process is converting this instance just now.
	errBusy = errors.New("being converted by another process")
	// errGone: the instance has no raw files any more.
	errGone = errors.New("no raw log")
)

const (
	sliceSize = 256 << 10 // what is read of a stream in one batch
	punchStep = 64 << 10
)

// buffers are for one batch at a time, so that many idle instances share them.
type buffers struct{ in, out []byte }

func newBuffers() *buffers { return &buffers{in: make([]byte, sliceSize)} }

// converter converts one instance's raw files. It keeps nothing that matters in memory: the checkpoint
// is read anew under the lock. Not for use by two goroutines; two converters of one instance are fine.
type converter struct {
	disk     disk
	root     string // podrun's root directory, whose pods' logs these are
	rawDir   string
	logPath  string // where new lines are looked for
	rotation Rotation

	lock    *os.File // also the checkpoint
	log     *os.File // at logPath, or where another instance has put it away
	raw     [2]*os.File
	state   checkpoint
	punched [2]int64
	rotated bool  // since somebody asked
	passed  int64 // bytes of output that never were in the log
}

// newConverter makes no file; a batch opens what it needs.
func newConverter(dirs layout.Dirs, inst pod.Instance, rotation Rotation) *converter {
	return &converter{
		disk:     realDisk{},
		root:     dirs.Root,
		rawDir:   rawDirOf(dirs, inst),
		logPath:  dirs.ContainerLog(inst.Key, inst.UID, inst.Container, inst.Attempt),
		rotation: rotation,
	}
}

// rawDirOf is where the instance's raw files are. One that the former version started has a directory by its
// attempt; any other has its own until its exit is recorded, so that it never takes that one for its own.
func rawDirOf(dirs layout.Dirs, inst pod.Instance) string {
	return sys.FirstPresent(dirs.RawLogs(inst)...)
}

// openConverter fails with errGone when the instance has no raw log directory.
func openConverter(dirs layout.Dirs, inst pod.Instance, rotation Rotation) (*converter, error) {
	c := newConverter(dirs, inst, rotation)
	return c, c.open()
}

func (c *converter) open() error {
	var err error
	c.lock, err = os.OpenFile(filepath.Join(c.rawDir, "checkpoint"), os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		return errGone
	}
	return err
}

// silent reports that nothing has been written yet, or that there are no raw files at all. Most
// containers are silent at first, and a file that nobody reads is not worth making while others start.
func (c *converter) silent() bool {
	for _, s := range []stream{stdout, stderr} {
		if info, err := os.Lstat(c.rawPath(s)); err == nil && info.Size() > 0 {
			return false
		}
	}
	return true
}

func (c *converter) close() {
	for _, f := range []*os.File{c.lock, c.log, c.raw[stdout], c.raw[stderr]} {
		if f != nil {
			f.Close()
		}
	}
}

func (c *converter) rawPath(s stream) string { return rawPath(c.rawDir, s) }

func rawPath(rawDir string, s stream) string { return filepath.Join(rawDir, s.String()+".raw") }

// batch converts a slice of each stream; more tells that there was more. With last, nothing will be
// written any more, and an unended line is converted too. Fails with errBusy, errGone, or what the file
// system said; then nothing was converted, or it was and is in the checkpoint.
func (c *converter) batch(b *buffers, last bool) (more bool, err error) {
	if c.lock == nil {
		if c.silent() {
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
	// Made before there is a line: whoever opens the converter of a silent container finds its log.
	if err := c.openLog(); err != nil {
		return false, err
	}
	next := c.state
	b.out = b.out[:0]
	for _, s := range c.order() {
		again, err := c.slice(b, s, &next, last)
		if err != nil {
			return false, err
		}
		more = more || again
	}
	if len(b.out) == 0 {
		return more, nil
	}
	if _, err := c.disk.WriteAt(c.log, b.out, c.state.size); err != nil {
		// Readers should not meet half an entry; the next batch cuts it in any case.
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

// load takes over what the last converter left, whoever that was.
func (c *converter) load() error {
	if gone, err := unlinked(c.lock); err != nil || gone {
		return errors.Join(err, condition(gone, errGone))
	}
	var file [2 * slotSize]byte
	n, err := c.lock.ReadAt(file[:], 0)
	if err != nil && err != io.EOF {
		return fmt.Errorf("reading checkpoint: %w", err)
	}
	if n == 0 && !c.hasRaw() {
		// All was converted and removed, and only now this was made. Its beginning is not the log's.
		return errors.Join(c.disk.Remove(c.lock.Name()), errGone)
	}
	state, ok := decode(file[:n])
	if ok && state.seq == c.state.seq && c.log != nil {
		return c.fit()
	}
	if c.log != nil {
		c.log.Close()
		c.log = nil
	}
	c.state = state
	// The first checkpoint makes the file whole; before that nothing is punched. Without a good one
	// after that, the whole machine crashed.
	if !ok && (n == len(file) || c.start(stdout) > 0 || c.start(stderr) > 0) {
		return c.recover()
	}
	return c.fit()
}

// fit makes log and checkpoint fit each other. Of a log that was put away or taken away the checkpoint must
// not go on telling: what is written next would be taken for what it tells of.
func (c *converter) fit() error {
	told := c.state.size
	if err := c.cut(); err != nil || c.state.size == told {
		return err
	}
	return c.save(c.state)
}

// hasRaw reports that there are raw files.
func (c *converter) hasRaw() bool {
	for _, s := range []stream{stdout, stderr} {
		if _, err := os.Lstat(c.rawPath(s)); !errors.Is(err, os.ErrNotExist) {
			return true
		}
	}
	return false
}

func condition(is bool, err error) error {
	if is {
		return err
	}
	return nil
}

// cut removes what the log has beyond the checkpoint. A log that is shorter was cut or removed by a
// person; conversion goes on at its end.
func (c *converter) cut() error {
	if c.log == nil {
		f, err := c.openOwn()
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
		return fmt.Errorf("looking at log: %w", err)
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

// openLog makes the log where there is none, with the modes that Kubernetes gives it. One that is there is another
// instance's of the same attempt, of which no checkpoint was left: it is put away, and whoever writes to it goes on
// where it is then. The checkpoint says which log it is before there is a line in it.
func (c *converter) openLog() error {
	if c.log != nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(c.logPath), layout.ModeLogs); err != nil {
		return fmt.Errorf("making log directory: %w", err)
	}
	claim(filepath.Dir(filepath.Dir(c.logPath)), c.root)
	if info, err := os.Lstat(c.logPath); err == nil && info.Size() > 0 {
		if err := c.putAway(); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(c.logPath, os.O_CREATE|os.O_RDWR, 0o640)
	if err != nil {
		return fmt.Errorf("making log: %w", err)
	}
	info, err := f.Stat()
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

// recover makes a state without a checkpoint: what was punched was converted, and the log's whole
// entries stand. Some lines may come twice.
func (c *converter) recover() error {
	c.state.raw = [2]int64{c.start(stdout), c.start(stderr)}
	var err error
	if c.state.size, err = wholeLines(c.logPath); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("reading log: %w", err)
	}
	c.state.file = 0
	return c.cut()
}

// wholeLines is how long a file is up to the end of its last whole line. It reads backwards, and keeps no more than a block.
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

// start returns the offset of the first byte of a raw file that was not punched.
func (c *converter) start(s stream) int64 {
	if c.openRaw(s) != nil || c.raw[s] == nil {
		return 0
	}
	at, err := unix.Seek(int(c.raw[s].Fd()), 0, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) { // no data at all
		at, _ = unix.Seek(int(c.raw[s].Fd()), 0, unix.SEEK_END)
	}
	return max(at, 0)
}

// order has the stream first that was written to earlier, so that a late conversion's times rise.
func (c *converter) order() [2]stream {
	var at [2]time.Time
	for _, s := range []stream{stdout, stderr} {
		if c.openRaw(s) == nil && c.raw[s] != nil {
			if st, err := c.raw[s].Stat(); err == nil {
				at[s] = st.ModTime()
			}
		}
	}
	if at[stderr].Before(at[stdout]) {
		return [2]stream{stderr, stdout}
	}
	return [2]stream{stdout, stderr}
}

// openRaw leaves the stream nil while it has no file, as a terminal's stderr never has.
func (c *converter) openRaw(s stream) error {
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

// slice appends the entries of one stream's next slice to b.out and moves next.
func (c *converter) slice(b *buffers, s stream, next *checkpoint, last bool) (more bool, err error) {
	if err := c.openRaw(s); err != nil || c.raw[s] == nil {
		return false, err
	}
	if err := c.passOver(b, s, next); err != nil {
		return false, err
	}
	n, err := c.raw[s].ReadAt(b.in, next.raw[s])
	if err != nil && err != io.EOF {
		return false, fmt.Errorf("reading raw log: %w", err)
	}
	if n == 0 {
		return false, nil
	}
	// Entries carry the time of reading, but what lay there unread was written no later than this.
	at := time.Now()
	if st, err := c.raw[s].Stat(); err == nil && st.ModTime().Before(at) {
		at = st.ModTime()
	}
	room := c.rotation.space(c.state.size + int64(len(b.out)))
	full, before := n == len(b.in), len(b.out)
	out, taken := appendEntries(b.out, b.in[:n], entries{stream: s, at: at, last: last && !full, space: room})
	b.out = out
	next.raw[s] += int64(taken)
	return full || len(out)-before >= room, nil
}

// save moves the checkpoint.
func (c *converter) save(next checkpoint) error {
	next.seq++
	if _, err := c.disk.WriteAt(c.lock, next.encode(), next.slot()); err != nil {
		return fmt.Errorf("writing checkpoint: %w", err)
	}
	c.state = next
	return nil
}

// punch frees what was converted. Where the file system cannot, the raw file stays whole till the end.
func (c *converter) punch() {
	for _, s := range []stream{stdout, stderr} {
		to := c.state.raw[s] / punchStep * punchStep
		if to > c.punched[s] && c.disk.Punch(c.rawPath(s), c.punched[s], to-c.punched[s]) == nil {
			c.punched[s] = to
		}
	}
}

// remove deletes the raw files; the checkpoint last, so that a raw file never is without one. Their directory goes
// once the exit is recorded.
func (c *converter) remove() error {
	if err := tryLock(c.lock); err != nil {
		return err
	}
	defer unlock(c.lock)
	for _, path := range []string{c.rawPath(stdout), c.rawPath(stderr), c.lock.Name()} {
		if err := c.disk.Remove(path); err != nil {
			return fmt.Errorf("removing raw log: %w", err)
		}
	}
	return nil
}
