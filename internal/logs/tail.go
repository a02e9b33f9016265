package logs

import (
	"bytes"
	"errors"
	"io"
	"os"
)

// lookBack bounds the search for the beginning of a line whose parts are mixed with the other stream's.
const lookBack = 1 << 20

// lastLines returns, per stream, the offset where the log's last n lines begin. It reads backwards, and
// no more than that needs.
func lastLines(f *os.File, n int) ([2]int64, error) {
	st, err := f.Stat()
	if err != nil {
		return [2]int64{}, err
	}
	b := &backward{file: f, at: st.Size()}
	t := tally{want: n, first: [2]int64{st.Size(), st.Size()}, touched: st.Size()}
	for {
		line, at, err := b.previous()
		if errors.Is(err, io.EOF) {
			return t.first, nil
		}
		if err != nil {
			return t.first, err
		}
		if !t.add(line, at) {
			return t.first, nil
		}
	}
}

// tally counts lines from the end.
type tally struct {
	want  int
	first [2]int64
	// open: the line at first[s] may begin earlier.
	open    [2]bool
	touched int64 // the lowest of first
}

// add takes the entry before all those added until now; false when it and what precedes is not needed.
func (t *tally) add(line []byte, at int64) bool {
	e, ok := parse(line)
	if !ok {
		e = entry{stream: stdout}
	}
	s := e.stream
	belongs := e.part && t.open[s]
	if !belongs {
		t.open[s] = false
		if t.want == 0 {
			// Only parts of lines that are already counted are still of interest.
			return (t.open[stdout] || t.open[stderr]) && t.touched-at < lookBack
		}
		t.want--
		t.open[s] = true
	}
	t.first[s], t.touched = at, at
	return true
}

// backward yields a file's lines from the last to the first.
type backward struct {
	file *os.File
	at   int64  // offset of buf's first byte
	buf  []byte // what was read and not yet yielded
}

const backwardStep = 64 << 10

// previous returns the line before, without its newline, and its offset; the bytes hold until the next
// call. It ends with io.EOF.
func (b *backward) previous() ([]byte, int64, error) {
	for {
		// A final newline ends its own line.
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
		step := min(b.at, backwardStep)
		grown := make([]byte, int(step)+len(b.buf))
		if _, err := b.file.ReadAt(grown[:step], b.at-step); err != nil {
			return nil, 0, err
		}
		copy(grown[step:], b.buf)
		b.buf, b.at = grown, b.at-step
	}
}
