package sys

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/moby/sys/mountinfo"
)

// NotMounted returns an error if a directory is or contains a mount point: removing the directory
// would continue into what is mounted. It returns nil for a directory that does not exist.
func NotMounted(dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil // the kernel's list is long where there are many pods
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	dir = filepath.Join(parent, filepath.Base(dir))
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return fmt.Errorf("listing mounts in %s: %w", dir, err)
	}
	if len(mounts) > 0 {
		return fmt.Errorf("not removing %s: %s is mounted", dir, mounts[0].Mountpoint)
	}
	return nil
}
