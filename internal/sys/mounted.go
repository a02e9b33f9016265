package sys

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/moby/sys/mountinfo"
)

// NotMounted refuses a directory that is or holds a mount: removal would go on into what is mounted. One that
// is not there holds none.
func NotMounted(dir string) error {
	parent, err := filepath.EvalSymlinks(filepath.Dir(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(filepath.Join(parent, filepath.Base(dir))))
	if err != nil {
		return fmt.Errorf("looking for mounts in %s: %w", dir, err)
	}
	if len(mounts) > 0 {
		return fmt.Errorf("not removing %s: %s is mounted", dir, mounts[0].Mountpoint)
	}
	return nil
}
