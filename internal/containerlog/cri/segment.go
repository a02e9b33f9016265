package containerlog

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"podrun.io/podrun/internal/sys"
)

// A log consists of parts. The current file has the log's own name. A part that was rotated has the
// time of the rotation and a number in its name, as 0.log.20260102-150405.7; older ones are
// compressed and end with .gz. Numbers increase by one, whatever the clock does, so that a reader
// knows which part is next.
const (
	partTime = "20060102-150405"
	packed   = ".gz"
	packing  = ".tmp"
)

// part is a rotated part of a log.
type part struct {
	number int
	path   string // without the suffix packed
	packed bool
}

func (p part) name() string {
	if p.packed {
		return p.path + packed
	}
	return p.path
}

// partName returns the name of the log's part with that number, rotated at that time.
func partName(log string, number int, at time.Time) string {
	return log + "." + at.UTC().Format(partTime) + "." + strconv.Itoa(number)
}

// partsOf returns the rotated parts of a log, the oldest first. If a part exists both compressed
// and uncompressed, because compressing it was interrupted, the uncompressed file is returned.
func partsOf(log string) ([]part, error) {
	entries, err := os.ReadDir(filepath.Dir(log))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing a log's parts: %w", err)
	}
	var all []part
	for _, e := range entries {
		rest, ours := strings.CutPrefix(e.Name(), filepath.Base(log)+".")
		if !ours {
			continue
		}
		rest, isPacked := strings.CutSuffix(rest, packed)
		at, number, _ := strings.Cut(rest, ".")
		n, err := strconv.Atoi(number)
		if _, bad := time.Parse(partTime, at); bad != nil || err != nil || n <= 0 {
			continue // not a part of this log
		}
		all = append(all, part{n, filepath.Join(filepath.Dir(log), filepath.Base(log)+"."+rest), isPacked})
	}
	slices.SortFunc(all, func(a, b part) int {
		if a.number == b.number && a.packed != b.packed {
			return cmp.Compare(len(a.name()), len(b.name()))
		}
		return cmp.Compare(a.number, b.number)
	})
	return slices.CompactFunc(all, func(a, b part) bool { return a.number == b.number }), nil
}

// nextNumber returns the number of the current file, after the parts put.
func nextNumber(put []part) int {
	if len(put) == 0 {
		return 1
	}
	return put[len(put)-1].number + 1
}

// opened is a rotated part or the current file, open for reading.
type opened struct {
	io.ReaderAt
	file   *os.File
	number int
	// written: it is the current file.
	written bool
}

func (o *opened) close() { o.file.Close() }

// openFrom opens the log's part with that number or, if that was removed, the next one;
// fs.ErrNotExist if there is none.
func openFrom(log string, number int) (*opened, error) {
	for {
		put, err := partsOf(log)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(put, func(p part) bool { return p.number >= number })
		if i >= 0 {
			o, err := put[i].open()
			if errors.Is(err, os.ErrNotExist) {
				continue // compressed or removed in the meantime
			}
			return o, err
		}
		f, err := sys.OpenRegularAt(log)
		if err != nil {
			return nil, err
		}
		now, err := partsOf(log)
		if err == nil && nextNumber(now) == nextNumber(put) {
			return &opened{ReaderAt: f, file: f, number: nextNumber(put), written: true}, nil
		}
		f.Close()
		if err != nil {
			return nil, err
		}
	}
}

func (p part) open() (*opened, error) {
	f, err := sys.OpenRegularAt(p.name())
	if err != nil {
		return nil, err
	}
	o := &opened{ReaderAt: f, file: f, number: p.number}
	if p.packed {
		z, err := gzip.NewReader(f)
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("unpacking %s: %w", p.name(), err)
		}
		o.ReaderAt = &unpacker{z: z}
	}
	return o, nil
}

// unpacker reads a compressed part from its start to its end.
type unpacker struct {
	z  *gzip.Reader
	at int64
}

// ReadAt implements io.ReaderAt for offsets that do not decrease.
func (u *unpacker) ReadAt(p []byte, off int64) (int, error) {
	if off < u.at {
		return 0, errors.New("reading a compressed log backwards")
	}
	skipped, err := io.CopyN(io.Discard, u.z, off-u.at)
	u.at += skipped
	if err != nil {
		return 0, err
	}
	n := 0
	for n < len(p) && err == nil {
		var more int
		more, err = u.z.Read(p[n:])
		n += more
	}
	u.at += int64(n)
	return n, err
}

// whole returns a reader for any offset, and the number of bytes it has.
func (o *opened) whole() (io.ReaderAt, int64, error) {
	if u, isPacked := o.ReaderAt.(*unpacker); isPacked {
		text, err := io.ReadAll(u.z)
		if err != nil {
			return nil, 0, fmt.Errorf("unpacking %s: %w", o.file.Name(), err)
		}
		return bytes.NewReader(text), int64(len(text)), nil
	}
	st, err := o.file.Stat()
	if err != nil {
		return nil, 0, err
	}
	return o.file, st.Size(), nil
}
