package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/host"
)

// claim announces id, makes its directory and locks it, and settles e's users. Names appear and vanish only under the lock of
// the directory of all sandboxes, which is held for that only; the lock order is id, then all.
func (s *Store) claim(id string, e *entry, ownUsers bool) (*host.Lock, error) {
	for {
		if err := s.announce(id, e, ownUsers); err != nil {
			return nil, err
		}
		lock, err := host.LockExisting(s.path(id))
		if errors.Is(err, os.ErrNotExist) {
			continue // another process has removed it in between
		}
		return lock, err
	}
}

// announce makes the names of id. The intent is a symbolic link because that is the one call that makes
// a name with its content at once; one that is there already says the same.
func (s *Store) announce(id string, e *entry, ownUsers bool) error {
	if err := os.MkdirAll(s.dir, 0o711); err != nil {
		return err
	}
	all, err := host.LockDir(s.dir, 0o711)
	if err != nil {
		return err
	}
	defer all.Unlock()
	if ownUsers {
		if e.Users, err = s.ownUsers(id); err != nil {
			return err
		}
	}
	intent, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if err := os.Symlink(string(intent), s.path(id)+intentSuffix); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	s.step("intent")
	if err := s.mountHome(); err != nil {
		return err
	}
	s.step("home")
	if err := os.Mkdir(s.path(id), 0o711); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	s.step("directory")
	return nil
}

// mountHome makes the directory of all sandboxes a mount of its own with private propagation: else each
// pin would also appear in every other mount namespace and keep its namespace alive there.
func (s *Store) mountHome() error {
	mounted, err := mountinfo.Mounted(s.dir)
	if err != nil {
		return fmt.Errorf("looking for the mount of %s: %w", s.dir, err)
	}
	if !mounted {
		if err := unix.Mount(s.dir, s.dir, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounting %s onto itself: %w", s.dir, err)
		}
	}
	// Every time: whoever mounted it may have died before this.
	if err := unix.Mount("", s.dir, "", unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making %s private: %w", s.dir, err)
	}
	return nil
}

// forget removes the emptied id's names, directory first. The caller holds id's lock.
func (s *Store) forget(id string) error {
	all, err := host.LockExisting(s.dir)
	if err != nil {
		return err
	}
	defer all.Unlock()
	if err := os.Remove(s.path(id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	s.step("directory removed")
	return s.forgetLast(id)
}

// forgetIntent removes the intent of an id that has no directory; not done when it has one after all.
func (s *Store) forgetIntent(id string) (done bool, err error) {
	all, err := host.LockExisting(s.dir)
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer all.Unlock()
	if _, err := os.Lstat(s.path(id)); err == nil {
		return false, nil
	}
	return true, s.forgetLast(id)
}

// drop puts a sandbox that goes out of mind.
func (s *Store) drop(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.cache, id)
	delete(s.known, id)
}

// forgetLast removes id's intent, and with the last one the directory of all sandboxes and its mount.
// The mount goes before the intent does: nothing would tell of a mount without a sandbox.
func (s *Store) forgetLast(id string) error {
	s.drop(id)
	names, err := names(s.dir)
	if err != nil {
		return err
	}
	last := len(names) == 0 || len(names) == 1 && names[0] == id+intentSuffix
	if last {
		if err := s.unmountHome(); err != nil {
			return err
		}
		s.step("home removed")
	}
	if err := removeFile(s.path(id) + intentSuffix); err != nil {
		return err
	}
	s.step("intent removed")
	if !last {
		return nil
	}
	return os.Remove(s.dir)
}

func (s *Store) unmountHome() error {
	for {
		mounted, err := mountinfo.Mounted(s.dir)
		if err != nil {
			return fmt.Errorf("looking for the mount of %s: %w", s.dir, err)
		}
		if !mounted {
			return nil
		}
		if err := unix.Unmount(s.dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmounting %s: %w", s.dir, err)
		}
	}
}

// names returns what is in a directory, in no order.
func names(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}
