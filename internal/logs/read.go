package logs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// ReadOptions choose what Read delivers, as kubectl's flags of these names do.
type ReadOptions struct {
	// Follow goes on with what is added until Stop is closed, and all before it was delivered.
	Follow bool
	// Tail is how many of the last lines are delivered; nil: all.
	Tail *int
	// Since leaves out lines that were read earlier; zero: none.
	Since time.Time
	// Timestamps puts the time before each line.
	Timestamps bool
	// Stop is closed when the log is complete; only looked at with Follow.
	Stop <-chan struct{}
}

// lookAgain is the time between two looks at a followed log: one fstat each, and no watch that a
// machine could run out of.
const lookAgain = 40 * time.Millisecond

// Read delivers the log in path: stdout's lines to out, stderr's to errOut, as the container wrote them.
// A line's parts are delivered as they come, joined. It fails with fs.ErrNotExist when there is no log;
// if it follows, it waits for one.
func Read(ctx context.Context, path string, o ReadOptions, out, errOut io.Writer) error {
	f, err := await(ctx, path, o)
	if err != nil {
		return fmt.Errorf("reading log: %w", err)
	}
	r := &reader{file: f, options: o, buf: make([]byte, 0, 64<<10), printer: newPrinter(o, out, errOut)}
	defer func() { r.file.Close() }()
	if o.Tail != nil {
		if r.first, err = lastLines(f, *o.Tail); err != nil {
			return fmt.Errorf("reading log: %w", err)
		}
		r.at = min(r.first[stdout], r.first[stderr])
	}
	return r.run(ctx, path)
}

// await opens path, once it is there.
func await(ctx context.Context, path string, o ReadOptions) (*os.File, error) {
	for {
		// Asked before opening: a log that came before the stop is found.
		stopped := !o.Follow || closed(o.Stop)
		f, err := os.Open(path)
		if !errors.Is(err, os.ErrNotExist) || stopped {
			return f, err
		}
		if err := sleep(ctx, lookAgain); err != nil {
			return nil, err
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// reader reads entries forward.
type reader struct {
	file    *os.File
	options ReadOptions
	printer *printer
	// at is the offset of buf's first byte; first is where each stream's delivery begins.
	at    int64
	first [2]int64
	buf   []byte
}

func (r *reader) run(ctx context.Context, path string) error {
	for {
		if err := ctx.Err(); err != nil {
			return errors.Join(err, r.printer.flush())
		}
		// Asked before reading: what is added after the stop is nobody's.
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
		if next, err := r.replaced(path); err != nil || next {
			if err != nil {
				return err
			}
			continue
		}
		if stopped {
			return r.leftover()
		}
		if err := sleep(ctx, lookAgain); err != nil {
			return err
		}
	}
}

// fill reads on; it makes room for entries longer than usual.
func (r *reader) fill() (int, error) {
	if len(r.buf) == cap(r.buf) {
		r.buf = append(r.buf, make([]byte, cap(r.buf))...)[:len(r.buf)]
	}
	n, err := r.file.ReadAt(r.buf[len(r.buf):cap(r.buf)], r.at+int64(len(r.buf)))
	r.buf = r.buf[:len(r.buf)+n]
	if err == io.EOF {
		err = nil
	}
	return n, err
}

// deliver prints the whole entries of buf and keeps the rest.
func (r *reader) deliver() error {
	done := 0
	for {
		n := bytes.IndexByte(r.buf[done:], '\n')
		if n < 0 {
			break
		}
		if err := r.line(r.buf[done:done+n], r.at+int64(done)); err != nil {
			return err
		}
		done += n + 1
	}
	r.at += int64(done)
	r.buf = r.buf[:copy(r.buf, r.buf[done:])]
	return nil
}

func (r *reader) line(line []byte, at int64) error {
	e, ok := parse(line)
	if ok && at < r.first[e.stream] {
		return nil
	}
	if !ok {
		// Not ours; a person who looks at the log should see it all the same.
		e = entry{stream: stdout, message: line}
	}
	return r.printer.print(e)
}

// leftover prints an entry without end, as only a foreign log can have.
func (r *reader) leftover() error {
	if len(r.buf) == 0 {
		return nil
	}
	if err := r.line(r.buf, r.at); err != nil {
		return err
	}
	return r.printer.flush()
}

// replaced goes over to the file that has taken path's place, if one has, as after a rotation; and to
// the start of a log that was emptied. A log that merely shrank was cut back to a checkpoint and will
// have the same entries there again.
func (r *reader) replaced(path string) (bool, error) {
	if !r.options.Follow {
		return false, nil
	}
	now, err := os.Stat(path)
	if err != nil {
		return false, nil // between two files, or removed for good: Stop tells
	}
	mine, err := r.file.Stat()
	if err != nil {
		return false, fmt.Errorf("reading log: %w", err)
	}
	switch {
	case !os.SameFile(now, mine):
		f, err := os.Open(path)
		if err != nil {
			return false, nil
		}
		r.file.Close()
		r.file = f
	case mine.Size() > 0 || r.at == 0:
		return false, nil
	}
	r.at, r.first, r.buf = 0, [2]int64{}, r.buf[:0]
	return true, nil
}

// printer writes entries as lines.
type printer struct {
	out        [2]*bufio.Writer
	last       stream
	timestamps bool
	since      []byte
	// inside: the stream's last entry was a part; hidden: of a line that is left out.
	inside, hidden [2]bool
}

func newPrinter(o ReadOptions, out, errOut io.Writer) *printer {
	p := &printer{timestamps: o.Timestamps, out: [2]*bufio.Writer{
		bufio.NewWriterSize(out, 32<<10), bufio.NewWriterSize(errOut, 32<<10)}}
	if !o.Since.IsZero() {
		p.since = o.Since.UTC().AppendFormat(nil, stampLayout)
	}
	return p
}

func (p *printer) print(e entry) error {
	s := e.stream
	begins := !p.inside[s]
	p.inside[s] = e.part
	if begins {
		p.hidden[s] = len(e.stamp) > 0 && earlier(e.stamp, p.since)
	}
	if p.hidden[s] {
		return nil
	}
	if s != p.last {
		// Both may be one terminal: keep the order.
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
	if !e.part {
		err = w.WriteByte('\n')
	}
	return err
}

// earlier compares times as text where both have podrun's fixed form.
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
	return errors.Join(p.out[stdout].Flush(), p.out[stderr].Flush())
}
