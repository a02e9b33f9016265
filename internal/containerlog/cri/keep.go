package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// files are a log's files.
type files interface {
	// segments returns the segments, the oldest first.
	segments() ([]Segment, error)
	// from opens the segment with that number or, if that was removed, the next one; fs.ErrNotExist
	// if there is none.
	from(number int) (*logFile, error)
}

// onDisk are the files of the log with that path.
type onDisk string

func (log onDisk) segments() ([]Segment, error)      { return Segments(string(log)) }
func (log onDisk) from(number int) (*logFile, error) { return openFrom(string(log), number) }

// Kept is a log that can be read after its files were removed, because all of them are open.
type Kept struct {
	rotated []Segment
	all     []*logFile // the segments and then the current file, if there is one
}

// Keep opens a log that does not grow any more; fs.ErrNotExist if there is none. The caller must call
// Close.
func Keep(path string) (*Kept, error) {
	k := &Kept{}
	for number := 0; ; {
		o, err := openFrom(path, number)
		if errors.Is(err, os.ErrNotExist) && len(k.all) > 0 {
			return k, nil
		}
		if err != nil {
			k.Close()
			return nil, fmt.Errorf("opening log: %w", err)
		}
		k.all = append(k.all, o)
		if o.current {
			return k, nil
		}
		k.rotated = append(k.rotated, Segment{number: o.number})
		number = o.number + 1
	}
}

// Close closes the files.
func (k *Kept) Close() {
	for _, o := range k.all {
		o.file.Close()
	}
}

// Read delivers the last lines of the log as the function Read does; tail nil: all.
func (k *Kept) Read(ctx context.Context, tail *int, out, errOut io.Writer) error {
	return read(ctx, k, ReadOptions{Tail: tail}, out, errOut)
}

// segments implements files.
func (k *Kept) segments() ([]Segment, error) { return k.rotated, nil }

// from implements files. What it returns shares its file with k.
func (k *Kept) from(number int) (*logFile, error) {
	i := slices.IndexFunc(k.all, func(o *logFile) bool { return o.number >= number || o.current })
	if i < 0 {
		return nil, os.ErrNotExist
	}
	o := *k.all[i]
	o.shared = true
	if _, compressed := o.ReaderAt.(*decompressor); compressed {
		return &o, o.decompress()
	}
	return &o, nil
}
