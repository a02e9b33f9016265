package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/moby/sys/mountinfo"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/sys"
)

// lockInterval is the time between two attempts to lock a sandbox that another Create or Remove has
// locked.
const lockInterval = 10 * time.Millisecond

// directory is the directory of all sandboxes, which has a directory for each of them. It is a mount
// of its own as long as there are any.
type directory struct {
	root string
	// step is called after each step of Create and Remove, for tests that interrupt them.
	step func(string)
}

// reserve is tryReserve, but waits while another holds the sandbox's lock, until ctx ends.
func (d *directory) reserve(ctx context.Context, id string) (*sys.Lock, error) {
	for {
		lock, err := d.tryReserve(id)
		if !errors.Is(err, sys.ErrLocked) {
			return lock, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for another to create or remove it: %w", ctx.Err())
		case <-time.After(lockInterval):
		}
	}
}

// tryReserve creates the sandbox's directory if it does not exist, and locks it; the error is
// sys.ErrLocked if another holds the lock. Sandbox directories are created and removed only under
// the lock of the directory of all sandboxes, which is held for nothing else; the lock order is id,
// then all.
func (d *directory) tryReserve(id string) (*sys.Lock, error) {
	for {
		if err := d.makeDir(id); err != nil {
			return nil, err
		}
		lock, err := sys.TryLockExisting(d.path(id))
		if errors.Is(err, os.ErrNotExist) {
			continue // another process has removed it in between
		}
		return lock, err
	}
}

func (d *directory) makeDir(id string) error {
	if err := os.MkdirAll(d.root, layout.ModePrivate); err != nil {
		return err
	}
	all, err := sys.LockDir(d.root, layout.ModePrivate)
	if err != nil {
		return err
	}
	defer all.Unlock()
	if err := d.mountDir(); err != nil {
		return err
	}
	d.step("directory mount")
	if err := os.Mkdir(d.path(id), layout.ModePrivate); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	d.step("directory")
	return nil
}

// mountDir makes the directory of all sandboxes a mount of its own with private propagation.
// Otherwise each pin would also appear in every other mount namespace and keep its namespace alive
// there.
func (d *directory) mountDir() error {
	mounted, err := mountinfo.Mounted(d.root)
	if err != nil {
		return fmt.Errorf("finding the mount of %s: %w", d.root, err)
	}
	if !mounted {
		if err := sys.BindOne(d.root, d.root); err != nil {
			return fmt.Errorf("binding it to itself: %w", err)
		}
	}
	// Repeated in every call: the process that mounted it may have died before this.
	if err := sys.SetPropagation(d.root, sys.Private); err != nil {
		return fmt.Errorf("making it private: %w", err)
	}
	return nil
}

// forget removes the empty directory of a sandbox. The caller holds the sandbox's lock.
func (d *directory) forget(id string) error {
	all, err := sys.LockExisting(d.root)
	if err != nil {
		return err
	}
	defer all.Unlock()
	// Removed last: its user IDs belong to the pod until nothing of the sandbox is left.
	if err := removeFile(d.file(id, firstUserName)); err != nil {
		return err
	}
	d.step("first user removed")
	if err := os.Remove(d.path(id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	d.step("directory removed")
	if err := removeFile(d.intent(id)); err != nil {
		return err
	}
	return d.removeEmptyDir()
}

// removeEmptyDir removes the directory of all sandboxes and its mount if there are no sandboxes.
// The caller holds the directory's lock.
func (d *directory) removeEmptyDir() error {
	left, err := names(d.root)
	if err != nil || len(left) > 0 {
		return err
	}
	if err := d.unmountDir(); err != nil {
		return err
	}
	d.step("directory mount removed")
	return os.Remove(d.root)
}

func (d *directory) unmountDir() error {
	for {
		mounted, err := mountinfo.Mounted(d.root)
		if err != nil {
			return fmt.Errorf("finding the mount of %s: %w", d.root, err)
		}
		if !mounted {
			return nil
		}
		if err := sys.Detach(d.root); err != nil {
			return err
		}
	}
}

// names returns the names of a directory's entries, unsorted.
func names(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}
