package containerlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// kept is how many bytes of an instance's log stay; 0: all.
func (r Rotation) kept() int64 { return r.Size * int64(r.Files) }

// passOver moves next over output that rotation would have removed by the time that all was converted: a container that
// writes faster than podrun converts must not fill the disk with raw output. An entry is longer than what it is made
// of, so that the raw bytes that are left fill all files that are kept. Half as much again may wait, so that this is
// not done at every batch.
func (c *converter) passOver(b *buffers, s stream, next *checkpoint) error {
	info, err := c.raw[s].Stat()
	if err != nil {
		return fmt.Errorf("looking at raw log: %w", err)
	}
	keep := c.rotation.kept()
	if keep == 0 || info.Size()-next.raw[s] <= keep+keep/2 {
		return nil
	}
	from := info.Size() - keep
	n, err := c.raw[s].ReadAt(b.in, from-1) // a line may begin just there
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading raw log: %w", err)
	}
	// A line that is longer than that begins in its middle.
	from += int64(max(bytes.IndexByte(b.in[:n], '\n'), 0))
	c.passed += from - next.raw[s]
	next.raw[s] = from
	return nil
}
