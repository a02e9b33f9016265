package volume

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

// hasUsers reports that the pod has users of its own. They see volumes as if their numbers were the
// machine's: what root owns on the disk is their root's, and what they write has their numbers there.
func hasUsers(in pod.Inside) bool { return in.Pod.Spec.HostUsers != nil && !*in.Pod.Spec.HostUsers }

// openWhole opens a volume, a directory or a file, to be bound.
func openWhole(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// bindMapped binds file to target as the users see it whose namespace is at the path users. What is mounted
// below it they see as nobody's.
func bindMapped(file, target *os.File, users string) error {
	ns, err := os.Open(users) // trusted: the namespace that podrun made
	if err != nil {
		return err
	}
	defer ns.Close()
	if err = sys.BindMapped(file, target, ns); errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("hostUsers: false: its file system cannot be shown with other owners here (%w)", err)
	}
	return err
}
