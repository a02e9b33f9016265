package cri

import (
	"cmp"
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

// CompressedSuffix ends the name of a compressed segment.
const CompressedSuffix = ".gz"

const segmentTime = "20060102-150405"

// Segment is a rotated file of a log. The current file has the log's own name. A segment has the
// time of the rotation and a number in its name, as 0.log.20260102-150405.7; older ones are
// compressed and end with .gz. Numbers increase by one, whatever the clock does, so that a reader
// knows which segment is next.
type Segment struct {
	Path       string // without CompressedSuffix
	Compressed bool
	number     int
}

// Name returns the path of the segment's file.
func (s Segment) Name() string {
	if s.Compressed {
		return s.Path + CompressedSuffix
	}
	return s.Path
}

// NextSegment returns the path of the log's next segment, which is rotated at that time.
func NextSegment(log string, at time.Time) (string, error) {
	segments, err := Segments(log)
	return segmentPath(log, nextNumber(segments), at), err
}

func segmentPath(log string, number int, at time.Time) string {
	return log + "." + at.UTC().Format(segmentTime) + "." + strconv.Itoa(number)
}

// Segments returns the segments of a log, the oldest first. If a segment exists both compressed
// and uncompressed, because compressing it was interrupted, the uncompressed file is returned.
func Segments(log string) ([]Segment, error) {
	entries, err := os.ReadDir(filepath.Dir(log))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing a log's segments: %w", err)
	}
	var all []Segment
	for _, e := range entries {
		rest, ours := strings.CutPrefix(e.Name(), filepath.Base(log)+".")
		if !ours {
			continue
		}
		rest, compressed := strings.CutSuffix(rest, CompressedSuffix)
		at, number, _ := strings.Cut(rest, ".")
		n, err := strconv.Atoi(number)
		if _, bad := time.Parse(segmentTime, at); bad != nil || err != nil || n <= 0 {
			continue // not a segment of this log
		}
		all = append(all, Segment{Path: log + "." + rest, Compressed: compressed, number: n})
	}
	slices.SortFunc(all, func(a, b Segment) int {
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(len(a.Name()), len(b.Name())))
	})
	return slices.CompactFunc(all, func(a, b Segment) bool { return a.number == b.number }), nil
}

// nextNumber returns the number of the current file, which follows the segments.
func nextNumber(segments []Segment) int {
	if len(segments) == 0 {
		return 1
	}
	return segments[len(segments)-1].number + 1
}

// logFile is a segment or the current file, open for reading.
type logFile struct {
	io.ReaderAt
	file   *os.File
	number int
	// current: it is the current file, which may grow.
	current bool
	// shared: close leaves the file open.
	shared bool
}

func (o *logFile) close() {
	if !o.shared {
		o.file.Close()
	}
}

// openFrom opens the log's segment with that number or, if that was removed, the next one;
// fs.ErrNotExist if there is none.
func openFrom(log string, number int) (*logFile, error) {
	for {
		segments, err := Segments(log)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(segments, func(s Segment) bool { return s.number >= number })
		if i >= 0 {
			o, err := segments[i].open()
			if errors.Is(err, os.ErrNotExist) {
				continue // compressed or removed in the meantime
			}
			return o, err
		}
		f, err := sys.OpenRegularAt(log)
		if err != nil {
			return nil, err
		}
		now, err := Segments(log)
		if err == nil && nextNumber(now) == nextNumber(segments) {
			return &logFile{ReaderAt: f, file: f, number: nextNumber(segments), current: true}, nil
		}
		f.Close()
		if err != nil {
			return nil, err
		}
	}
}

func (s Segment) open() (*logFile, error) {
	f, err := sys.OpenRegularAt(s.Name())
	if err != nil {
		return nil, err
	}
	o := &logFile{ReaderAt: f, file: f, number: s.number}
	if s.Compressed {
		if err := o.decompress(); err != nil {
			f.Close()
			return nil, err
		}
	}
	return o, nil
}
