package volume

import (
	"errors"
	"fmt"
	"os"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

// hasUsers reports whether the pod has a user namespace of its own (hostUsers: false). Its
// processes see volumes as if user IDs were mapped one to one: files of the host's root belong to
// the pod's root, and files that they create have the IDs that they have inside the pod.
func hasUsers(in pod.Inside) bool { return in.Pod.Spec.HostUsers != nil && !*in.Pod.Spec.HostUsers }

// bindMapped binds file to target, ID-mapped for the user namespace at the path users. Mounts below
// it are not mapped: there, files belong to nobody in that namespace.
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
