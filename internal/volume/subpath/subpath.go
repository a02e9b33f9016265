// Package subpath makes the directories of a subPath in a volume that others write to meanwhile. Begin reading at Make.
package subpath

import (
	"errors"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/sys"
)

// Make creates the missing directories of a path in a volume, with the mode of the directory that they are in. Whoever
// can write to the volume may exchange them meanwhile: no mode is changed by a name, and each is opened without links.
func Make(root *os.File, sub string) error {
	parts := strings.Split(filepath.Clean(sub), "/")
	// All directories on a path that is there are there, so half of the paths that are left need no look.
	there := sort.Search(len(parts), func(n int) bool {
		dir, err := openBeneath(root, filepath.Join(parts[:n+1]...))
		if err == nil {
			_ = dir.Close()
		}
		return err != nil
	})
	in, err := openBeneath(root, filepath.Join(".", filepath.Join(parts[:there]...)))
	if err != nil {
		return err
	}
	return withoutUmask(func() error { return makeIn(in, parts[there:]) })
}

// makeIn creates directories in each other, and closes the one that they are in.
func makeIn(in *os.File, parts []string) error {
	defer func() { _ = in.Close() }()
	for _, part := range parts {
		info, err := in.Stat()
		if err != nil {
			return err
		}
		// The kernel hands on the set-group-ID bit and the group.
		err = unix.Mkdirat(int(in.Fd()), part, uint32(info.Mode().Perm()))
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		made, err := sys.OpenBeneath(in, part, sys.NoLinks, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		_ = in.Close()
		in = made
	}
	return nil
}

// openBeneath opens a directory in a volume, as a path.
func openBeneath(root *os.File, path string) (*os.File, error) {
	return sys.OpenBeneath(root, path, sys.LinksBeneath, unix.O_PATH|unix.O_DIRECTORY)
}

// withoutUmask runs f on a thread of its own on which directories get exactly the mode that they are made with.
func withoutUmask(f func() error) error {
	return sys.OnOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return os.NewSyscallError("unshare", err)
		}
		unix.Umask(0)
		return f()
	})
}
