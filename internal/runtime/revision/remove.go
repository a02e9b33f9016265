package revision

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"podrun.io/podrun/internal/host"
	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
)

// Sweep removes the directories of revisions that were cut off while they came or went.
func (f *Files) Sweep() error {
	for _, kind := range []string{coming, going} {
		left, err := filepath.Glob(filepath.Join(f.o.Dirs.Pods(), kind+"*"))
		if err != nil {
			return err
		}
		for _, dir := range left {
			if err := host.NotMounted(dir); err != nil {
				return err
			}
			if err := os.RemoveAll(dir); err != nil {
				return fmt.Errorf("removing what is left of a pod: %w", err)
			}
		}
	}
	return nil
}

// NotMounted refuses a revision in whose directories something is mounted: it might be a user's.
func (f *Files) NotMounted(key pod.Key, uid pod.UID) error {
	for _, dir := range []string{f.o.Dirs.PodLogs(key, uid), f.o.Dirs.Pod(uid)} {
		if err := host.NotMounted(dir); err != nil {
			return err
		}
	}
	return nil
}

// RemoveData removes all that is kept for a revision, its volumes and logs too, and the manifest last, so that what is
// cut off is found again. NotMounted is to be asked before anything of the pod is removed.
func (f *Files) RemoveData(ctx context.Context, key pod.Key, uid pod.UID) error {
	if err := layout.CheckUID(uid); err != nil {
		return err
	}
	if err := f.retireLogs(f.o.Dirs.PodLogs(key, uid)); err != nil {
		return err
	}
	if err := os.RemoveAll(f.o.Dirs.Etc(uid)); err != nil {
		return fmt.Errorf("removing what a pod has in the run directory: %w", err)
	}
	if err := f.removeAllButManifest(ctx, uid); err != nil {
		return fmt.Errorf("removing a pod's data: %w", err)
	}
	f.manifests.Drop(uid)
	if err := os.Rename(f.o.Dirs.Pod(uid), f.besides(going, uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a pod's directory: %w", err)
	}
	if err := os.RemoveAll(f.besides(going, uid)); err != nil {
		return fmt.Errorf("removing a pod's directory: %w", err)
	}
	return nil
}

// retireLogs removes a revision's logs or, where they are to stay for a time, has that time begin.
func (f *Files) retireLogs(dir string) error {
	var err error
	if f.o.KeepLogs {
		now := time.Now()
		if err = os.Chtimes(dir, now, now); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	} else {
		err = os.RemoveAll(dir)
	}
	if err != nil {
		return fmt.Errorf("removing a pod's logs: %w", err)
	}
	return nil
}

func (f *Files) removeAllButManifest(ctx context.Context, uid pod.UID) error {
	dir := f.o.Dirs.Pod(uid)
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() { // a link is not followed
		return nil
	}
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == filepath.Base(f.o.Dirs.Manifest(uid)) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
