package sys

import (
	"context"
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// TreeSize returns the disk usage in bytes and the number of files of a directory and everything in
// it. A file with several hard links counts once. It counts allocated blocks, not file lengths. A
// directory that does not exist has size 0; what is mounted in it is not counted.
func TreeSize(ctx context.Context, dir string) (bytes, files int64, err error) {
	root, err := OpenTree(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	defer root.Close()
	type inode struct{ dev, ino uint64 }
	seen := map[inode]struct{}{}
	add := func(st *unix.Stat_t) {
		if st.Mode&unix.S_IFMT != unix.S_IFDIR && st.Nlink > 1 {
			id := inode{st.Dev, st.Ino}
			if _, counted := seen[id]; counted {
				return
			}
			seen[id] = struct{}{}
		}
		bytes += st.Blocks * 512
		files++
	}
	addDir := func(fd int) error {
		var st unix.Stat_t
		err := unix.Fstat(fd, &st)
		if err == nil {
			add(&st)
		}
		return err
	}
	if err := addDir(int(root.Fd())); err != nil {
		return 0, 0, err
	}
	err = WalkTree(ctx, root, TreeVisitor{
		Enter: addDir,
		File: func(dir int, name string) error {
			var st unix.Stat_t
			err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT)
			if errors.Is(err, unix.ENOENT) { // removed in the meantime
				return nil
			}
			if err == nil {
				add(&st)
			}
			return err
		},
		Unopened: func(_ string, err error) error {
			if errors.Is(err, unix.EXDEV) {
				return nil
			}
			return err
		},
	})
	return bytes, files, err
}
