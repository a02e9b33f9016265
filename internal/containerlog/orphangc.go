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

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/sys"
)

// claimed is the attribute of a directory of logs that says below which root directory podrun keeps the pod that they
// are of. The directory that logs are in is the kubelet's too, and another podrun's; their logs are told by it.
const claimed = "trusted.podrun.root"

// claim marks a pod's directory of logs as podrun's. Where attributes cannot be had such logs go with their
// pods all the same; only what is left of pods whose end nobody saw stays then.
func claim(dir, root string) { _ = unix.Setxattr(dir, claimed, []byte(root), 0) }

// isClaimed reports that the directory is marked as that root directory's.
func isClaimed(dir, root string) bool {
	value := make([]byte, len(root)+1)
	n, err := unix.Lgetxattr(dir, claimed, value)
	return err == nil && string(value[:n]) == root
}

// removing begins the name of a directory that is being removed.
const removing = ".going-"

// Retired removes the logs of pods that are gone: those that were to stay for a time, and those of pods whose end
// podrun did not see, as when its root directory was lost.
type Retired struct {
	Dirs layout.Dirs
	Pods runtime.Lister
}

// Remove removes the logs of pods that are gone and that nothing has happened to for that long, and returns their
// directories' names. Logs of a pod of which anything is left stay, and so does all that is not podrun's.
func (r Retired) Remove(ctx context.Context, age time.Duration) (removed []string, err error) {
	old, err := r.old(time.Now().Add(-age))
	if err != nil || len(old) == 0 {
		return nil, err
	}
	// Looked at after the directories: a pod has a manifest before it has logs.
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

// old are the names of podrun's own directories of logs that have no pod's directory beside them and nothing
// newer in them.
func (r Retired) old(than time.Time) ([]string, error) {
	entries, err := os.ReadDir(r.Dirs.Log)
	if err != nil {
		return nil, fmt.Errorf("looking for old logs: %w", err)
	}
	var out []string
	for _, e := range entries {
		name := strings.TrimPrefix(e.Name(), removing)
		if !e.IsDir() || uidOf(name) == "" || !isClaimed(filepath.Join(r.Dirs.Log, e.Name()), r.Dirs.Root) {
			continue
		}
		if name != e.Name() { // another was cut off while it removed this
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

// hasPod reports that the pod's own directory is there, or may be.
func (r Retired) hasPod(name string) bool {
	_, err := os.Lstat(r.Dirs.Pod(uidOf(name)))
	return !errors.Is(err, fs.ErrNotExist)
}

// uidOf is the UID in a directory's name, NAMESPACE_POD_UID; "" when the name is another.
func uidOf(name string) pod.UID {
	parts := strings.SplitN(name, "_", 3)
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || strings.HasPrefix(name, ".") {
		return ""
	}
	return pod.UID(parts[2])
}

// changed is when anything in a directory was written last.
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

// remove removes a directory of logs, unless its pod has come back. It is put aside first: a pod that comes from
// then on makes a new one, and one that came before has its own directory by then and gets its logs back.
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
