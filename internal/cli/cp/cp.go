// Package cp copies files into containers and out of them, for podrun cp. It needs nothing in the container, no tar
// either: it reads and writes what the container's first process sees beneath /proc/PID/root.
//
// What is in a container is a stranger's, and what is on this machine may be too, such as a volume of a container.
// Nothing is written on this machine outside the directory that the user names, no link or device is made here, and
// nothing is opened that is not a regular file or a directory.
//
// Begin reading at Copier.Copy.
package cp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/cli"
)

// Copier copies files.
type Copier struct {
	Runtime Runtime
	ErrOut  io.Writer
	// Preserve gives files in the container the owner and mode that they have on this machine, as far as the user of
	// the container may.
	Preserve bool
}

// Copy copies a file, or a directory with what is in it, into a running container or out of it. What cannot be copied
// is a warning, and in the end one error.
func (c *Copier) Copy(ctx context.Context, of Instance, from, to FileSpec) error {
	files, err := open(ctx, c.Runtime, of)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		defer files.root.Close()
		t := &transfer{ctx: ctx, container: files, errOut: c.ErrOut, preserve: c.Preserve}
		err := t.run(from, to)
		if err == nil { // if it has ended, its volumes may have been gone when they were copied
			err = files.check(ctx, c.Runtime)
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(patience): // in a call of a file system that hangs
		return ctx.Err()
	}
}

// patience is how long an interrupted copy may take to remove what is not complete.
const patience = 2 * time.Second

// transfer is one copy of a tree.
type transfer struct {
	*container
	ctx      context.Context
	errOut   io.Writer
	preserve bool
	writer   writer
	// failed and skipped count what was not copied.
	failed, skipped int
}

// mostSkipped is how many files that are left out or fail are named, each.
const mostSkipped = 100

func (t *transfer) run(from, to FileSpec) (err error) {
	if from.Local() {
		err = t.into(from.Path, to.Path)
	} else {
		err = t.out(from.Path, to.Path)
	}
	if more := t.skipped - mostSkipped; more > 0 {
		cli.Warnf(t.errOut, "skipped %d more", more)
	}
	if err == nil && t.failed > 0 {
		err = fmt.Errorf("%d of the files could not be copied", t.failed)
	}
	return err
}

// deepest bounds the directories within each other that are copied.
const deepest = 500

// smallest is up to how many bytes a file of a container may have whose size says less.
const smallest = 16 << 20

// skip says that a file is left out; it is not a failure.
func (t *transfer) skip(name, why string) {
	if t.skipped++; t.skipped <= mostSkipped {
		cli.Warnf(t.errOut, "skipping %s: it is %s", name, why)
	}
}

// miss says that a file could not be copied.
func (t *transfer) miss(err error) {
	if t.failed++; t.failed <= mostSkipped {
		cli.Warnf(t.errOut, "%v", err)
	}
}

// children calls each with the names in a directory, which it opens. What fails is said, and the others follow.
func (t *transfer) children(e entry, each func(dir *os.File, name string) error) error {
	dir, err := e.open()
	if err != nil {
		return err
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(1000)
		for _, name := range names {
			err := each(dir, name)
			if t.ctx.Err() != nil {
				return t.ctx.Err()
			}
			if err != nil {
				t.miss(err)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// content copies a file of this machine.
func (t *transfer) content(to io.Writer, from io.Reader) error {
	_, err := io.Copy(to, &interruptible{t.ctx, from})
	return err
}

// bounded copies a small file of the container, which may grow meanwhile. Some file systems do not know the size of
// their files, and say 0.
func (t *transfer) bounded(to io.Writer, from io.Reader, size int64) error {
	n, err := io.Copy(to, &interruptible{t.ctx, io.LimitReader(from, smallest+1)})
	if err == nil && n > smallest {
		err = fmt.Errorf("has a size of %d bytes and more than %d MiB to read", size, smallest>>20)
	}
	return err
}

// data copies a file of the container that has a size without its holes, which would fill the disk here. It copies
// nothing beyond the size.
func (t *transfer) data(to, from *os.File, size int64) error {
	for end := int64(0); end < size; {
		begin, err := from.Seek(end, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) || err == nil && begin >= size { // the rest is a hole
			break
		}
		if err == nil {
			end, err = from.Seek(begin, unix.SEEK_HOLE)
		}
		if err == nil {
			_, err = from.Seek(begin, io.SeekStart)
		}
		if err == nil {
			_, err = to.Seek(begin, io.SeekStart)
		}
		if err == nil {
			err = t.content(to, io.LimitReader(from, min(end, size)-begin))
		}
		if err != nil {
			return err
		}
	}
	if now, err := from.Stat(); err != nil || now.Size() < size {
		return errors.Join(fmt.Errorf("had %d bytes, and has become shorter meanwhile", size), err)
	}
	return to.Truncate(size)
}

// interruptible is a reader that fails when a context has ended.
type interruptible struct {
	ctx context.Context
	io.Reader
}

func (r *interruptible) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}
