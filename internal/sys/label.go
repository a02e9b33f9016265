package sys

import (
	"bytes"
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// labelName is the extended attribute that contains a file's SELinux label.
const labelName = "security.selinux"

// LabelTree gives a file, or a directory and everything in it, an SELinux label. Other processes
// may change the tree meanwhile: each file is labelled by a descriptor of its own, so a symbolic
// link never leads outside the tree, whenever it is put there. Files that are removed meanwhile are
// skipped, and what is mounted in the tree keeps its own labels.
func LabelTree(ctx context.Context, path, label string) error {
	fd, err := retried(func() (int, error) { return unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0) })
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	root := os.NewFile(uintptr(fd), path)
	defer root.Close()
	if err := labelAll(ctx, root, []byte(label)); err != nil {
		return &os.PathError{Op: "label", Path: path, Err: err}
	}
	return nil
}

func labelAll(ctx context.Context, root *os.File, label []byte) error {
	// An O_PATH descriptor does not support setting attributes; its path in /proc does, and reaches
	// the file itself even if that is a symbolic link.
	set := func(fd int) error {
		has := make([]byte, len(label)+1) // the kernel's ends with a NUL
		n, err := unix.Getxattr(FDPath(fd), labelName, has)
		if err == nil && bytes.Equal(bytes.TrimSuffix(has[:n], []byte{0}), label) {
			return nil // the next start has less to do, also after one that was cut off, and changes no times
		}
		err = unix.Setxattr(FDPath(fd), labelName, label, 0)
		// On NFS files have the label that the mount gives them, and what is mounted read-only keeps its own.
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EROFS) {
			return nil
		}
		return err
	}
	if err := set(int(root.Fd())); err != nil {
		return err
	}
	if info, err := root.Stat(); err != nil || !info.IsDir() {
		return err
	}
	return WalkTree(ctx, root, TreeVisitor{
		File: func(dir int, name string) error {
			fd, err := retried(func() (int, error) {
				return unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			})
			if errors.Is(err, unix.ENOENT) {
				return nil
			}
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return set(fd)
		},
		Enter: set,
		Unopened: func(_ string, err error) error {
			if errors.Is(err, unix.EXDEV) {
				return nil
			}
			return err
		},
	})
}
