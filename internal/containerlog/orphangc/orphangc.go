package containerlog

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
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/sys"
)

// claimed is the extended attribute of a pod's log directory that names the root directory of the
// podrun that owns the pod. The directory of all logs is shared with the kubelet and with other
// podrun instances; the attribute tells their logs apart.
const claimed = "trusted.podrun.root"

// claim marks a pod's log directory as podrun's. On a file system without extended attributes such
// logs are still removed together with their pods; only logs of pods whose removal podrun did not
// see stay.
func claim(dir, root string) { _ = unix.Setxattr(dir, claimed, []byte(root), 0) }

// isClaimed reports whether the directory is marked with that root directory.
func isClaimed(dir, root string) bool {
	value := make([]byte, len(root)+1)
	n, err := unix.Lgetxattr(dir, claimed, value)
	return err == nil && string(value[:n]) == root
}

// removing is the prefix of the name of a directory that is being removed.
const removing = ".going-"

// Retired removes the logs of pods that do not exist any more: logs that were kept for a time, and
// logs of pods whose removal podrun did not see, for example because its root directory was lost.
type Retired struct {
	Dirs layout.Dirs
	Pods runtime.Lister
}

// Remove removes the logs of pods that do not exist any more and that did not change for that long.
// It returns the names of the removed directories. The logs of a pod of which anything is left
// stay, and so do directories that are not podrun's. If some directories cannot be removed, it
// removes the others and returns the joined errors.
func (r Retired) Remove(ctx context.Context, age time.Duration) (removed []string, err error) {
	old, err := r.old(time.Now().Add(-age))
	if err != nil || len(old) == 0 {
		return nil, err
	}
	// Listed after the directories were read: a pod has a manifest before it has logs.
	all, err := r.Pods.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("removing old logs: %w", err)
	}
	left := map[pod.UID]bool{}
	for _, o := range all {
		for _, c := range o.Containers {
			left[c.UID] = true
		}
		for _, s := range o.Sandboxes {
			left[s.UID] = true
		}
	}
	var errs []error
	for _, name := range old {
		if left[uidOf(name)] {
			continue
		}
		if gone, err := r.remove(name); err != nil {
			errs = append(errs, fmt.Errorf("removing old logs: %w", err))
		} else if gone {
			removed = append(removed, name)
		}
	}
	return removed, errors.Join(errs...)
}

// old returns the names of podrun's own log directories whose pod has no directory and in which
// nothing is newer than the time than.
func (r Retired) old(than time.Time) ([]string, error) {
	entries, err := os.ReadDir(r.Dirs.Log)
	if err != nil {
		return nil, fmt.Errorf("listing old logs: %w", err)
	}
	var out []string
	for _, e := range entries {
		name := strings.TrimPrefix(e.Name(), removing)
		if !e.IsDir() || uidOf(name) == "" || !isClaimed(filepath.Join(r.Dirs.Log, e.Name()), r.Dirs.Root) {
			continue
		}
		if name != e.Name() { // an earlier removal was interrupted
			out = append(out, name)
			continue
		}
		if r.hasPod(name) {
			continue
		}
		if at, err := changed(filepath.Join(r.Dirs.Log, name)); err == nil && at.Before(than) {
			out = append(out, name)
		}
	}
	return out, nil
}

// hasPod reports whether the pod's own directory exists, or may exist.
func (r Retired) hasPod(name string) bool {
	_, err := os.Lstat(r.Dirs.Pod(uidOf(name)))
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

// changed returns when anything in a directory was last written.
func changed(dir string) (latest time.Time, err error) {
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
func (r Retired) remove(name string) (gone bool, err error) {
	dir, aside := filepath.Join(r.Dirs.Log, name), filepath.Join(r.Dirs.Log, removing+name)
	if err := errors.Join(sys.NotMounted(dir), sys.NotMounted(aside)); err != nil {
		return false, err
	}
	if _, err := os.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
		if err := os.Rename(dir, aside); err != nil {
			return false, err
		}
	}
	if r.hasPod(name) {
		err := unix.Renameat2(unix.AT_FDCWD, aside, unix.AT_FDCWD, dir, unix.RENAME_NOREPLACE)
		if err == nil || !errors.Is(err, fs.ErrExist) {
			return false, err
		}
	}
	return true, os.RemoveAll(aside) // trusted: podrun makes logs
}
