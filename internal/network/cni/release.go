package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/network/records"
	"podrun.io/podrun/internal/sys"
)

// lockSuffix ends the names of the directories that are the locks of single IDs. A lock's directory
// exists only while a process has the lock, or if a process died with it.
const lockSuffix = ".lock"

// ReleaseError reports that the plugins did not release an ID. The ID's record stays.
type ReleaseError struct {
	err error
	// FormerBoot: the plugins were called in an earlier boot, so the kernel has nothing left to
	// release.
	FormerBoot bool
	// Impossible: the release could not start, because plugins are not installed or the recorded
	// configuration cannot be read.
	Impossible bool
}

func (e *ReleaseError) Error() string { return e.err.Error() }
func (e *ReleaseError) Unwrap() error { return e.err }

// lock waits until no other call works on id, and returns the function that unlocks it.
func (c *Plugins) lock(ctx context.Context, id string) (unlock func(), err error) {
	if err := os.MkdirAll(c.Records, 0o700); err != nil {
		return nil, err
	}
	lock, err := records.LockDir(ctx, c.lockPath(id), 0o700, c.unlock)
	if err != nil {
		return nil, err
	}
	return func() { c.unlock(lock) }, nil
}

func (c *Plugins) unlock(lock *sys.Lock) {
	_ = os.Remove(lock.Path()) // a process that waits for the lock creates the directory again
	lock.Unlock()
}

func (c *Plugins) lockPath(id string) string { return filepath.Join(c.Records, id+lockSuffix) }

// has reports whether there is a record of id, or a call works on it.
func (c *Plugins) has(id string) (bool, error) {
	for _, path := range []string{c.RecordPath(id), c.lockPath(id)} {
		if _, err := os.Lstat(path); err == nil || !errors.Is(err, os.ErrNotExist) {
			return err == nil, err
		}
	}
	return false, nil
}

// Teardown releases what Setup reserved for id, with the configuration of that time. Without a
// record it does nothing.
func (c *Plugins) Teardown(ctx context.Context, id string) error {
	if has, err := c.has(id); err != nil || !has {
		return err
	}
	unlock, err := c.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	return c.drop(ctx, id)
}

// Sweep is Teardown for an ID that is not known. If another call works on the ID, it does nothing
// and returns sys.ErrLocked.
func (c *Plugins) Sweep(ctx context.Context, id string, known func(id string) bool) error {
	if has, err := c.has(id); err != nil || !has {
		return err
	}
	lock, err := sys.TryLockDir(c.lockPath(id), 0o700)
	if err != nil {
		return err
	}
	defer c.unlock(lock)
	if known(id) {
		return nil
	}
	return c.drop(ctx, id)
}

// drop releases id and removes its record. The caller holds id's lock.
func (c *Plugins) drop(ctx context.Context, id string) error {
	text, err := os.ReadFile(c.RecordPath(id))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var a attachment
	// A record that was truncated by a power cut is ignored: the plugins cannot have been called
	// long before.
	if err == nil && json.Unmarshal(text, &a) == nil {
		if err := c.release(ctx, id, a); err != nil {
			return err
		}
	}
	for _, path := range []string{c.RecordPath(id) + ".tmp", c.RecordPath(id)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// release calls the plugins to release what they set up, within delLimit. It searches them in the
// recorded directories and in the configured ones.
func (c *Plugins) release(ctx context.Context, id string, a attachment) error {
	gone := !isNamespace(a.NetNS)
	boot, err := c.Boot()
	if err != nil {
		return err
	}
	former := a.Boot != boot
	if a.Boot == "" {
		former = gone
	}
	if former || gone {
		a.NetNS = "" // only addresses are left to release, and in the same boot firewall rules
	}
	for _, dir := range c.BinDirs {
		if !slices.Contains(a.BinDirs, dir) {
			a.BinDirs = append(a.BinDirs, dir)
		}
	}
	list, err := libcni.NetworkConfFromBytes(a.Conflist)
	if err != nil {
		return &ReleaseError{err: err, FormerBoot: former, Impossible: true}
	}
	missing := c.installed(list, a)
	if missing != nil && !a.Failed {
		return &ReleaseError{err: missing, FormerBoot: former, Impossible: true}
	}
	ctx, cancel := withLimit(ctx, c.DelLimit)
	defer cancel()
	if err := c.del(ctx, id, list, a); err != nil {
		return &ReleaseError{err: err, FormerBoot: former, Impossible: missing != nil}
	}
	return nil
}

// del calls the plugins. Plugins that failed to connect the pod because of an error in their
// configuration may fail to release it too; del then calls them with the directory's current
// configuration, in which the error may be corrected.
func (c *Plugins) del(ctx context.Context, id string, list *libcni.NetworkConfigList, a attachment) error {
	if !a.Failed {
		if err := c.delAdditional(ctx, id, a.NetNS, a); err != nil {
			return err
		}
	}
	err := c.library(a.BinDirs).DelNetworkList(ctx, list, a.runtime(id, a.NetNS))
	if err != nil && a.Failed {
		if now, unread := c.Configuration(); unread == nil && now != nil && now.Name == list.Name {
			err = c.library(c.BinDirs).DelNetworkList(ctx, now, a.runtime(id, a.NetNS))
		}
	}
	if err != nil {
		return fmt.Errorf("CNI's network %s: %w", list.Name, err)
	}
	return nil
}

// Holders returns the IDs that have a record or that a call works on, sorted.
func (c *Plugins) Holders() ([]string, error) {
	entries, err := os.ReadDir(c.Records)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var ids []string
	for _, e := range entries {
		for _, suffix := range []string{recordSuffix, lockSuffix} {
			if id, ok := strings.CutSuffix(e.Name(), suffix); ok {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// isNamespace reports whether a namespace is mounted at path. The file that remains after its
// unmount is none.
func isNamespace(path string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) == nil && fs.Type == unix.NSFS_MAGIC
}

// withLimit bounds the time that the plugins may need. The context's cause names the limit.
func withLimit(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %s: %w", limit, context.DeadlineExceeded))
}
