// Package orphangc removes the logs of pods that do not exist any more, and knows by an attribute of
// a log directory which podrun owns it. It does not remove the logs of a pod that exists.
//
// Begin reading at Collector.
package orphangc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/containerlog/links"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/sys/mounted"
)

// ownerAttr is the extended attribute of a pod's log directory that names the root directory of the
// podrun that owns the pod. The directory of all logs is shared with the kubelet and with other
// podrun instances; the attribute distinguishes their logs.
const ownerAttr = "trusted.podrun.root"

// SetOwner marks a pod's log directory as podrun's. On a file system without extended attributes
// such logs are still removed together with their pods; only logs of pods whose removal podrun did
// not see stay.
func SetOwner(dir, root string) { _ = unix.Lsetxattr(dir, ownerAttr, []byte(root), 0) }

// hasOwner reports whether the directory is marked with that root directory.
func hasOwner(dir, root string) bool {
	value := make([]byte, len(root)+1)
	n, err := unix.Lgetxattr(dir, ownerAttr, value)
	return err == nil && string(value[:n]) == root
}

// removing is the prefix of the name of a directory that is being removed.
const removing = ".going-"

// Collector removes the logs of pods that do not exist any more: logs that were retained for a time,
// and logs of pods whose removal podrun did not see, for example because its root directory was
// lost.
type Collector struct {
	Dirs layout.Dirs
	Pods runtime.Lister
}

// Remove removes the logs of pods that do not exist any more and that did not change for that long.
// It returns the names of the removed directories. The logs of a pod of which anything is left
// stay, and so do directories that are not podrun's. If some directories cannot be removed, it
// removes the others and returns the joined errors.
func (c Collector) Remove(ctx context.Context, age time.Duration) (removed []string, err error) {
	old, err := c.old(time.Now().Add(-age))
	if err != nil || len(old) == 0 {
		return nil, err
	}
	// Listed after the directories were read: a pod has a manifest before it has logs.
	all, err := c.Pods.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("removing old logs: %w", err)
	}
	exists := map[pod.UID]bool{}
	for _, o := range all {
		for _, i := range o.Containers {
			exists[i.UID] = true
		}
		for _, s := range o.Sandboxes {
			exists[s.UID] = true
		}
	}
	var errs []error
	for _, name := range old {
		if exists[uidOf(name)] {
			continue
		}
		if ok, err := c.remove(name); err != nil {
			errs = append(errs, fmt.Errorf("removing old logs: %w", err))
		} else if ok {
			removed = append(removed, name)
		}
	}
	return removed, errors.Join(errs...)
}

// old returns the names of podrun's own log directories whose pod has no directory and in which
// nothing is newer than the time than.
func (c Collector) old(than time.Time) ([]string, error) {
	entries, err := os.ReadDir(c.Dirs.Log)
	if err != nil {
		return nil, fmt.Errorf("listing old logs: %w", err)
	}
	var out []string
	for _, e := range entries {
		name := strings.TrimPrefix(e.Name(), removing)
		if !e.IsDir() || uidOf(name) == "" || !hasOwner(filepath.Join(c.Dirs.Log, e.Name()), c.Dirs.Root) {
			continue
		}
		if name != e.Name() { // an earlier removal was interrupted
			out = append(out, name)
			continue
		}
		if c.hasPod(name) {
			continue
		}
		if at, err := modified(filepath.Join(c.Dirs.Log, name)); err == nil && at.Before(than) {
			out = append(out, name)
		}
	}
	return out, nil
}

// hasPod reports whether the pod's own directory exists, or may exist.
func (c Collector) hasPod(name string) bool {
	_, err := os.Lstat(c.Dirs.Pod(uidOf(name)))
	return !errors.Is(err, fs.ErrNotExist)
}

// uidOf returns the UID in the name NAMESPACE_POD_UID of a directory; "" if the name has another
// form.
func uidOf(name string) pod.UID {
	parts := strings.SplitN(name, "_", 3)
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || strings.HasPrefix(name, ".") {
		return ""
	}
	return pod.UID(parts[2])
}

// modified returns when anything in a directory was last written.
func modified(dir string) (latest time.Time, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error { // trusted: podrun makes logs
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && info.ModTime().After(latest) {
			latest = info.ModTime()
		}
		return err
	})
	return latest, err
}

// remove removes a log directory unless its pod exists again. It renames the directory first: a pod
// that is created after that makes a new log directory; a pod that was created before that has its
// own directory by then, and its logs are renamed back.
func (c Collector) remove(name string) (removed bool, err error) {
	dir, aside := filepath.Join(c.Dirs.Log, name), filepath.Join(c.Dirs.Log, removing+name)
	if err := errors.Join(mounted.Nothing(dir), mounted.Nothing(aside)); err != nil {
		return false, err
	}
	if _, err := os.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
		if err := os.Rename(dir, aside); err != nil {
			return false, err
		}
	}
	if c.hasPod(name) {
		err := unix.Renameat2(unix.AT_FDCWD, aside, unix.AT_FDCWD, dir, unix.RENAME_NOREPLACE)
		if err == nil || !errors.Is(err, fs.ErrExist) {
			return false, err
		}
	}
	unlinked := links.RemoveRevision(c.Dirs, uidOf(name))
	return true, errors.Join(unlinked, os.RemoveAll(aside)) // trusted: podrun makes logs
}
