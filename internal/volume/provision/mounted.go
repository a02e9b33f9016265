package provision

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/sys"
)

// CheckMounted returns an error if the claims had a file system of their own and have none now, as when it is mounted
// late in a boot. Claims would be made anew on the disk of the root directory, and pods begin without their data. It
// records that there is one.
func CheckMounted(dirs layout.Dirs) error {
	mounted, err := isMounted(dirs)
	if err != nil {
		return err
	}
	record := layout.ClaimsMounted(dirs)
	switch _, err := os.Lstat(record); {
	case errors.Is(err, fs.ErrNotExist) && mounted:
		return sys.WriteDurable(record, nil, 0o600)
	case errors.Is(err, fs.ErrNotExist), err == nil && mounted:
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("the file system of %s is not mounted; if it is to have none any more, remove %s", dirs.Claims(), record)
}

func isMounted(dirs layout.Dirs) (bool, error) {
	claims, err := os.Stat(dirs.Claims())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	root, err := os.Stat(dirs.Root)
	if err != nil {
		return false, err
	}
	return root.Sys().(*syscall.Stat_t).Dev != claims.Sys().(*syscall.Stat_t).Dev, nil
}
