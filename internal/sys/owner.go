package sys

import (
	"fmt"
	"os"
	"syscall"
)

// MkdirOwn creates a directory of podrun's own, with its parents, unless it exists. It returns an
// error if the directory belongs to another user, who could replace what root then runs and trusts.
// The owner is checked last, so that nobody can create the directory in between.
func MkdirOwn(path string, mode os.FileMode) error {
	if err := os.MkdirAll(path, mode); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; owner != 0 && int(owner) != os.Geteuid() {
		return fmt.Errorf(
			"%s belongs to user %d, who could replace its content: choose another directory, or remove it", path, owner)
	}
	return nil
}
