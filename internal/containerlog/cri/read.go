package cri

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"podrun.io/podrun/internal/sys"
)

// ReadOptions select what Read delivers; the fields have the meaning of kubectl's flags of the same
// names.
type ReadOptions struct {
	// Follow continues with entries that are added later, until Stop is closed and everything
	// before that is delivered.
	Follow bool
	// Tail is how many of the last lines are delivered; nil: all.
	Tail *int
	// Since leaves out lines with an earlier time; zero: none.
	Since time.Time
	// Timestamps prefixes each line with its time.
	Timestamps bool
	// Omit leaves out the lines of a stream; Tail does not count them.
	Omit [2]bool
	// CaughtUp is called, with Follow, whenever everything that the log has is delivered, also while
	// there is no log yet; nil: nothing is called.
	CaughtUp func()
	// Stop is closed when the log is complete; only used with Follow.
	Stop <-chan struct{}
}

// recheck is the time between two checks of a followed log. A check is one fstat and needs no
// inotify watch, of which a machine could run out.
const recheck = 40 * time.Millisecond

// Read delivers the log at path, including its segments: the lines of stdout to out, those of stderr
// to errOut, as the container wrote them. The parts of a long line are joined and delivered as they
// come, so that a line of any length takes little memory. It fails with fs.ErrNotExist if there is no log; with
// Follow it waits for one.
func Read(ctx context.Context, path string, o ReadOptions, out, errOut io.Writer) error {
	return read(ctx, onDisk(path), o, out, errOut)
}

// read is Read of a log that has these files.
func read(ctx context.Context, log files, o ReadOptions, out, errOut io.Writer) error {
	r := &reader{files: log, options: o, buf: make([]byte, 0, maxEntry), printer: newPrinter(o, out, errOut)}
	if err := r.open(ctx); err != nil {
		return fmt.Errorf("reading log: %w", err)
	}
	defer func() { r.from.close() }()
	return r.run(ctx)
}

// open opens the log at the position where delivery begins; with Follow it waits until there is a
// log.
func (r *reader) open(ctx context.Context) error {
	for {
		// Checked before opening: a log that was created before the stop is found.
		stopped := !r.options.Follow || closed(r.options.Stop)
		err := r.begin(ctx)
		if !errors.Is(err, os.ErrNotExist) || stopped {
			return err
		}
		if err := r.await(ctx); err != nil {
			return err
		}
	}
}

// await waits for more of a log of which everything is delivered.
func (r *reader) await(ctx context.Context) error {
	if r.options.CaughtUp != nil {
		r.options.CaughtUp()
	}
	return sys.Sleep(ctx, recheck)
}

// begin determines where delivery begins and opens that segment.
func (r *reader) begin(ctx context.Context) error {
	if r.options.Tail != nil {
		first, err := lastLines(ctx, r.files, *r.options.Tail, r.options.Omit)
		if err != nil {
			return err
		}
		r.first = first
		at := first[Stdout]
		if first[Stderr].before(at) {
			at = first[Stderr]
		}
		if r.from, err = r.files.from(at.number); err != nil || r.from.number != at.number {
			return err
		}
		r.at = at.offset
		if u, compressed := r.from.ReaderAt.(*decompressor); compressed {
			if err = u.skip(ctx, r.at); err != nil && !errors.Is(err, io.EOF) {
				r.from.close()
				return err
			}
		}
		return nil
	}
	number, err := firstSince(r.files, r.options.Since)
	if err != nil {
		return err
	}
	if r.from, err = r.files.from(number); errors.Is(err, os.ErrNotExist) && number > 0 {
		r.from, err = r.files.from(0) // rotated, and there is no new log yet
	}
	return err
}

// timeGranularity is more than the granularity of file times.
const timeGranularity = time.Second

// firstSince returns the number of the first segment that may have entries as new as since: the
// modification time of a file is not earlier than the time of any entry in it.
func firstSince(log files, since time.Time) (int, error) {
	segments, err := log.segments()
	if err != nil || since.IsZero() {
		return 0, err
	}
	for _, s := range segments {
		if st, err := os.Lstat(s.Name()); err != nil || !st.ModTime().Before(since.Add(-timeGranularity)) {
			return s.number, nil
		}
	}
	return nextNumber(segments), nil
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// position is the position of an entry: the number of the segment, and the offset in it.
type position struct {
	number int
	offset int64
}

func (p position) before(q position) bool {
	return p.number < q.number || p.number == q.number && p.offset < q.offset
}

// reader reads entries forwards.
type reader struct {
	files   files
	from    *logFile
	options ReadOptions
	printer *printer
	// at is the offset of buf's first byte; first is where each stream's delivery begins.
	at    int64
	first [2]position
	buf   []byte
	// cut is the entry of which buf has not the beginning, because that is delivered; nil: buf begins with an entry.
	cut *piece
}

// piece is an entry of which the message is delivered piece by piece.
type piece struct {
	entry
	skipped bool // it is before the first one that is delivered
}

func (r *reader) run(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return errors.Join(err, r.printer.flush())
		}
		// Checked before reading: what is added after the stop need not be delivered.
		stopped := !r.options.Follow || closed(r.options.Stop)
		n, err := r.fill()
		if err != nil {
			return fmt.Errorf("reading log: %w", err)
		}
		if err := r.deliver(); err != nil {
			return err
		}
		if n > 0 {
			continue
		}
		if err := r.printer.flush(); err != nil {
			return err
		}
		if again, err := r.nextSegment(); err != nil || again {
			if err != nil {
				return fmt.Errorf("reading log: %w", err)
			}
			continue
		}
		if stopped {
			return r.deliverRest()
		}
		if err := r.await(ctx); err != nil {
			return err
		}
	}
}

// fill reads more of the file into buf, in which deliver has left space.
func (r *reader) fill() (int, error) {
	n, err := r.from.ReadAt(r.buf[len(r.buf):cap(r.buf)], r.at+int64(len(r.buf)))
	r.buf = r.buf[:len(r.buf)+n]
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// deliver prints the whole entries in buf and keeps the rest. An entry that fills buf it prints piece by piece.
func (r *reader) deliver() error {
	done := 0
	for {
		n := bytes.IndexByte(r.buf[done:], '\n')
		if n < 0 {
			break
		}
		if err := r.line(r.buf[done:done+n], r.at+int64(done), true); err != nil {
			return err
		}
		done += n + 1
	}
	if done == 0 && len(r.buf) == cap(r.buf) {
		if err := r.line(r.buf, r.at, false); err != nil {
			return err
		}
		done = len(r.buf)
	}
	r.at += int64(done)
	r.buf = r.buf[:copy(r.buf, r.buf[done:])]
	return nil
}

// line prints an entry, or a piece of one; ends: the entry ends with it.
func (r *reader) line(line []byte, at int64, ends bool) error {
	var p piece
	if r.cut != nil {
		p, r.cut = *r.cut, nil
		p.message = line
	} else if e, ok := parse(line); ok {
		p = piece{e, (position{r.from.number, at}).before(r.first[e.stream])}
	} else {
		// Not a CRI entry; print it all the same, so that the user sees it.
		p.entry = entry{stream: Stdout, message: line}
	}
	if !ends {
		r.cut = &piece{p.entry, p.skipped}
	}
	if p.skipped || r.options.Omit[p.stream] {
		return nil
	}
	p.partial = p.partial || !ends
	return r.printer.print(p.entry)
}

// deliverRest prints an entry without a newline, which only a log that podrun did not write has.
func (r *reader) deliverRest() error {
	if len(r.buf) == 0 && r.cut == nil {
		return nil
	}
	if err := r.line(r.buf, r.at, true); err != nil {
		return err
	}
	return r.printer.flush()
}

// nextSegment is called at the end of a file and reports whether there is more to read now. A
// segment does not grow any more, so the next file follows. The current log may have been rotated
// since it was opened, and then its last entries are still to be read.
func (r *reader) nextSegment() (bool, error) {
	if r.from.current {
		return r.replaced()
	}
	next, err := r.files.from(r.from.number + 1)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil // between two files, or removed for good: Stop decides
	}
	if err != nil {
		return false, err
	}
	if err := r.deliverRest(); err != nil {
		next.close()
		return false, err
	}
	r.from.close()
	r.from, r.at, r.buf = next, 0, r.buf[:0]
	return true, nil
}

// replaced checks whether a followed file was rotated or emptied. A log that merely shrank was cut
// back to a checkpoint and gets the same entries again.
func (r *reader) replaced() (bool, error) {
	path, grows := r.files.(onDisk)
	if !r.options.Follow || !grows {
		return false, nil
	}
	now, err := os.Lstat(string(path))
	if err != nil {
		return false, nil // between two files, or removed for good: Stop decides
	}
	mine, err := r.from.file.Stat()
	if err != nil {
		return false, err
	}
	if !os.SameFile(now, mine) {
		r.from.current = false
		segments, err := r.files.segments()
		if err == nil && nextNumber(segments) <= r.from.number {
			r.from.number, r.first = r.from.number-1, [2]position{} // another program renamed it, without a number
		}
		return true, err
	}
	if mine.Size() > 0 || r.at == 0 {
		return false, nil
	}
	r.at, r.first, r.buf, r.cut = 0, [2]position{}, r.buf[:0], nil
	return true, nil
}

// printer writes entries as lines.
type printer struct {
	out        [2]*bufio.Writer
	last       Stream
	timestamps bool
	since      []byte
	// midLine: the stream's last entry was partial; hidden: that line is left out.
	midLine, hidden [2]bool
}

func newPrinter(o ReadOptions, out, errOut io.Writer) *printer {
	p := &printer{timestamps: o.Timestamps, out: [2]*bufio.Writer{
		bufio.NewWriterSize(out, 32<<10), bufio.NewWriterSize(errOut, 32<<10)}}
	if !o.Since.IsZero() {
		p.since = o.Since.UTC().AppendFormat(nil, timeLayout)
	}
	return p
}

func (p *printer) print(e entry) error {
	s := e.stream
	begins := !p.midLine[s]
	p.midLine[s] = e.partial
	if begins {
		p.hidden[s] = len(e.stamp) > 0 && earlier(e.stamp, p.since)
	}
	if p.hidden[s] {
		return nil
	}
	if s != p.last {
		// Both may go to the same terminal: keep the order.
		if err := p.out[p.last].Flush(); err != nil {
			return err
		}
		p.last = s
	}
	w := p.out[s]
	if begins && p.timestamps && len(e.stamp) > 0 {
		_, _ = w.Write(e.stamp)
		_ = w.WriteByte(' ')
	}
	_, err := w.Write(e.message)
	if !e.partial {
		err = w.WriteByte('\n')
	}
	return err
}

// earlier compares times as text if both have podrun's fixed layout.
func earlier(stamp, since []byte) bool {
	if len(since) == 0 {
		return false
	}
	if len(stamp) == len(since) && stamp[len(stamp)-1] == 'Z' {
		return bytes.Compare(stamp, since) < 0
	}
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return false
	}
	from, err := time.Parse(time.RFC3339Nano, string(since))
	return err == nil && at.Before(from)
}

func (p *printer) flush() error {
	return errors.Join(p.out[Stdout].Flush(), p.out[Stderr].Flush())
}
