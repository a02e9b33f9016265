package cri

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"os"
)

// searchLimit bounds the search for the beginning of a line whose parts alternate with entries of
// the other stream.
const searchLimit = 1 << 20

// lastLines returns, for each stream, where the log's last n lines begin; lines of streams in omit do not count. It
// reads backwards, file by file, and no more than necessary.
func lastLines(ctx context.Context, log files, n int, omit [2]bool) ([2]position, error) {
	t := lineCounter{want: n, omit: omit}
	o, err := openNewest(log)
	for {
		if err != nil {
			return t.first, err
		}
		var more bool
		more, err = t.addAll(ctx, o)
		o.close()
		if err != nil || !more {
			return t.first, err
		}
		if o, err = openAt(log, o.number-1); errors.Is(err, os.ErrNotExist) {
			return t.first, nil
		}
	}
}

// openNewest opens the current file or, if there is none, the newest segment.
func openNewest(log files) (*logFile, error) {
	o, err := log.from(math.MaxInt)
	if !errors.Is(err, os.ErrNotExist) {
		return o, err
	}
	segments, listErr := log.segments()
	if listErr != nil || len(segments) == 0 {
		return nil, errors.Join(err, listErr)
	}
	return log.from(segments[len(segments)-1].number)
}

// openAt opens the segment with that number; fs.ErrNotExist if it was removed.
func openAt(log files, number int) (*logFile, error) {
	o, err := log.from(number)
	if err == nil && o.number > number {
		o.close()
		err = os.ErrNotExist
	}
	return o, err
}

// lineCounter counts lines from the end.
type lineCounter struct {
	want    int
	omit    [2]bool // streams whose lines do not count
	started bool
	first   [2]position
	// open: the line at first[s] may begin earlier.
	open     [2]bool
	distance int64 // bytes since the lowest position in first
}

// start begins at the end of the log.
func (t *lineCounter) start(end position) {
	if !t.started {
		t.started, t.first = true, [2]position{end, end}
	}
}

// addAll adds the entries of a file, the last one first; false if earlier entries are not needed.
func (t *lineCounter) addAll(ctx context.Context, o *logFile) (more bool, err error) {
	if _, compressed := o.ReaderAt.(*decompressor); compressed {
		return t.addCompressed(ctx, o)
	}
	st, err := o.file.Stat()
	if err != nil {
		return false, err
	}
	t.start(position{o.number, st.Size()})
	b := &backwardReader{file: o.file, at: st.Size(), buf: make([]byte, 0, maxEntry+blockSize)}
	for {
		line, at, err := b.previous(ctx)
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		if !t.add(line, position{o.number, at}) {
			return false, nil
		}
	}
}

// add adds the entry before those added so far; false if it and earlier ones are not needed.
func (t *lineCounter) add(line []byte, at position) bool {
	e := parseAny(line)
	s := e.stream
	belongs := e.partial && t.open[s]
	t.distance += int64(len(line))
	if t.omit[s] {
		return t.more()
	}
	if !belongs {
		t.open[s] = false
		if t.want == 0 {
			// From here on, only parts of lines that are already counted are needed.
			return t.more()
		}
		t.want--
		t.open[s] = true
	}
	t.first[s], t.distance = at, 0
	return true
}

// more reports whether earlier entries are needed.
func (t *lineCounter) more() bool {
	return t.want > 0 || (t.open[Stdout] || t.open[Stderr]) && t.distance < searchLimit
}

// backwardReader returns a file's lines from the last to the first.
type backwardReader struct {
	file io.ReaderAt
	at   int64  // offset of buf's first byte
	buf  []byte // bytes that were read and not returned yet; its capacity is maxEntry+blockSize
}

const blockSize = 64 << 10

// previous returns the preceding line, without its newline, and its offset; of a line of more than maxEntry
// bytes, it returns at least its first maxEntry bytes. The bytes are valid until the next call. It returns io.EOF
// at the start of the file.
func (b *backwardReader) previous(ctx context.Context) ([]byte, int64, error) {
	for {
		// A final newline belongs to the line that it ends.
		end := len(b.buf)
		if end > 0 && b.buf[end-1] == '\n' {
			end--
		}
		if n := bytes.LastIndexByte(b.buf[:end], '\n'); n >= 0 {
			line := b.buf[n+1 : end]
			b.buf = b.buf[:n+1]
			return line, b.at + int64(n+1), nil
		}
		if b.at == 0 {
			if len(b.buf) == 0 {
				return nil, 0, io.EOF
			}
			line := b.buf[:end]
			b.buf = nil
			return line, 0, nil
		}
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		step, rest := min(b.at, blockSize), b.buf[:min(len(b.buf), maxEntry)]
		b.buf = b.buf[:int(step)+len(rest)]
		copy(b.buf[step:], rest)
		if _, err := b.file.ReadAt(b.buf[:step], b.at-step); err != nil {
			return nil, 0, err
		}
		b.at -= step
	}
}
