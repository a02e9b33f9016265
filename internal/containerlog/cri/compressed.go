package cri

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
)

// decompressor reads a compressed segment from its start to its end. A few MB may unpack to any size, so nothing keeps
// all of it.
type decompressor struct {
	z  *gzip.Reader
	at int64
}

// decompress makes the file of a compressed segment readable from its start, whatever was read of it
// before.
func (o *logFile) decompress() error {
	z, err := gzip.NewReader(io.NewSectionReader(o.file, 0, math.MaxInt64))
	if err != nil {
		return fmt.Errorf("decompressing %s: %w", o.file.Name(), err)
	}
	o.ReaderAt = &decompressor{z: z}
	return nil
}

// ReadAt implements io.ReaderAt for offsets that do not decrease.
func (u *decompressor) ReadAt(p []byte, off int64) (int, error) {
	if off < u.at {
		return 0, errors.New("reading a compressed log backwards")
	}
	if err := u.skip(context.Background(), off); err != nil {
		return 0, err
	}
	n, err := 0, error(nil)
	for n < len(p) && err == nil {
		var more int
		more, err = u.z.Read(p[n:])
		n += more
	}
	u.at += int64(n)
	return n, err
}

// skip reads up to an offset, until ctx ends.
func (u *decompressor) skip(ctx context.Context, to int64) error {
	for u.at < to {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := io.CopyN(io.Discard, u.z, min(to-u.at, 1<<20))
		u.at += n
		if err != nil {
			return err
		}
	}
	return nil
}

// addCompressed is addAll of a compressed segment. It reads the segment forwards, once to count the lines that end in
// it, and once more to find where those that are wanted begin.
func (t *lineCounter) addCompressed(ctx context.Context, o *logFile) (more bool, err error) {
	var ends int
	start, last, partial := [2]int64{-1, -1}, [2]int64{-1, -1}, [2]bool{}
	size, err := o.entries(ctx, func(e entry, at int64) bool {
		if t.omit[e.stream] {
			return true
		}
		if s := e.stream; start[s] < 0 {
			start[s] = at
		}
		last[e.stream], partial[e.stream] = at, e.partial
		if !e.partial {
			ends++
		}
		return true
	})
	if err != nil {
		return false, err
	}
	t.start(position{o.number, size})
	for s := range last {
		if partial[s] && !t.open[s] {
			ends++ // a last line without an end
		} else {
			last[s] = -1
		}
		t.open[s] = t.open[s] || start[s] >= 0
	}
	if older := ends - t.want; older > 0 {
		if start, err = t.passOver(ctx, o, older, last); err != nil {
			return false, err
		}
	}
	t.want -= min(ends, t.want)
	t.distance += size
	for s, at := range start {
		if at >= 0 {
			t.first[s], t.distance = position{o.number, at}, min(t.distance, at)
		}
	}
	return t.more(), nil
}

// passOver returns, for each stream, where the entries begin after the segment's first n lines; -1: there are none.
// Lines end with an entry that is not partial, or at the offsets in last. A stream with such a line is not open.
func (t *lineCounter) passOver(ctx context.Context, o *logFile, n int, last [2]int64) ([2]int64, error) {
	start := [2]int64{-1, -1}
	if err := o.decompress(); err != nil {
		return start, err
	}
	_, err := o.entries(ctx, func(e entry, at int64) bool {
		s := e.stream
		if t.omit[s] {
			return true
		}
		if start[s] < 0 {
			start[s] = at
		}
		if n > 0 && (!e.partial || at == last[s]) {
			n--
			start[s], t.open[s] = -1, false
		}
		return n > 0 || start[Stdout] < 0 || start[Stderr] < 0
	})
	return start, err
}

// entries passes the entries of a compressed segment to f, with their offsets, until f returns false. It returns the
// offset of the end. The message of an entry of more than maxEntry bytes is cut.
func (o *logFile) entries(ctx context.Context, f func(e entry, at int64) bool) (size int64, err error) {
	in := bufio.NewReaderSize(o.ReaderAt.(*decompressor).z, maxEntry)
	begins := true
	for {
		text, err := in.ReadSlice('\n')
		full := errors.Is(err, bufio.ErrBufferFull)
		if err != nil && !full && !errors.Is(err, io.EOF) {
			return 0, fmt.Errorf("decompressing %s: %w", o.file.Name(), err)
		}
		if begins && len(text) > 0 && !f(parseAny(bytes.TrimSuffix(text, []byte{'\n'})), size) {
			return size, nil
		}
		size += int64(len(text))
		if err != nil && !full {
			return size, nil
		}
		if begins = !full; ctx.Err() != nil {
			return 0, ctx.Err()
		}
	}
}
