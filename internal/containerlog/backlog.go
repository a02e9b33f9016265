package containerlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"podrun.io/podrun/internal/containerlog/cri"
)

// retained returns how many bytes of an instance's log are kept; 0: all of them.
func (r Rotation) retained() int64 { return r.Size * int64(r.Files) }

// skipBacklog moves next past output that rotation would have removed anyway by the time that all of
// it was converted: a container that writes faster than podrun converts must not fill the disk with
// raw output. A log entry is longer than the raw bytes it is made of, so the raw bytes that remain
// fill all the log files that are kept. Half as much again may wait, so that this does not happen
// in every batch.
func (c *converter) skipBacklog(b *buffers, s cri.Stream, next *checkpoint) error {
	info, err := c.raw[s].Stat()
	if err != nil {
		return fmt.Errorf("inspecting raw log: %w", err)
	}
	size := c.rotation.retained()
	if size == 0 || info.Size()-next.raw[s] <= size+size/2 {
		return nil
	}
	from := info.Size() - size
	n, err := c.raw[s].ReadAt(b.in, from-1) // a line may begin exactly at from
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading raw log: %w", err)
	}
	// If the line is longer than the buffer, the output begins in the middle of it.
	from += int64(max(bytes.IndexByte(b.in[:n], '\n'), 0))
	c.skipped += from - next.raw[s]
	next.raw[s] = from
	return nil
}
