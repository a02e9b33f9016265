package host

import (
	"errors"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// labelName is where the kernel keeps the SELinux label of a file.
const labelName = "security.selinux"

// LabelTree gives a file, or a directory with all in it, an SELinux label. Others may change what is in it meanwhile:
// each file is labelled by a descriptor of its own, so no link leads out, in whatever moment it is put there. What goes
// away meanwhile needs no label.
func LabelTree(path, label string) error {
	fd, err := retried(func() (int, error) { return unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0) })
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	if err := labelAt(fd, []byte(label)); err != nil {
		return &os.PathError{Op: "label", Path: path, Err: err}
	}
	return nil
}

// labelAt is LabelTree of what the descriptor stands for, which it closes.
func labelAt(fd int, label []byte) error {
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	// A descriptor to look by takes no attributes; its name does, of the file itself even if that is a link.
	err := unix.Setxattr("/proc/self/fd/"+strconv.Itoa(fd), labelName, label, 0)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return err
	}
	listed, err := retried(func() (int, error) {
		return unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return err
	}
	dir := os.NewFile(uintptr(listed), "")
	defer dir.Close()
	for {
		const some = 256 // a directory may have more than fit into memory
		names, err := dir.Readdirnames(some)
		for _, name := range names {
			entry, err := retried(func() (int, error) {
				return unix.Openat(fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			})
			if err == nil {
				err = labelAt(entry, label)
			}
			if err != nil && !errors.Is(err, unix.ENOENT) {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
