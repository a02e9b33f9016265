package sys

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// OwnDir returns an error if a directory of podrun's own belongs to another user: that user could
// replace what root then runs and trusts. It returns nil for a directory that does not exist yet.
func OwnDir(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; owner != 0 && int(owner) != os.Geteuid() {
		return fmt.Errorf(
			"%s belongs to user %d, who could replace its content: choose another directory, or remove it", path, owner)
	}
	return nil
}
