package sys

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// OwnDir complains about a directory that another user has made where podrun's own is to be: that user could replace what
// root then runs and believes. One that is not there yet is fine.
func OwnDir(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; owner != 0 && int(owner) != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d, who could replace what is in it: choose another directory, or remove it", path, owner)
	}
	return nil
}
