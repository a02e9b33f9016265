package cli

import (
	"fmt"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/oci"
)

// privileged is the hint of what a container lacks.
const privileged = "nothing was started; run the container with --privileged"

// NeedCapabilities returns an error unless the process, which runs as root, may create namespaces, mounts and
// cgroups. In a container that is not privileged it may not, and no pod could ever start.
func NeedCapabilities(command string) error {
	var missing string
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has [2]unix.CapUserData
	if err := unix.Capget(&header, &has[0]); err != nil {
		return nil // the first mount will tell
	}
	var cgroups unix.Statfs_t
	switch {
	case has[0].Effective&(1<<unix.CAP_SYS_ADMIN) == 0:
		missing = "needs the capability CAP_SYS_ADMIN, which this process does not have"
	case has[0].Effective&(1<<unix.CAP_NET_ADMIN) == 0:
		missing = "needs the capability CAP_NET_ADMIN, which this process does not have"
	case unix.Statfs("/sys/fs/cgroup", &cgroups) == nil && cgroups.Type == unix.CGROUP2_SUPER_MAGIC &&
		cgroups.Flags&unix.ST_RDONLY != 0:
		missing = "cannot create cgroups: /sys/fs/cgroup is mounted read-only"
	default:
		return nil
	}
	return &Error{
		Code: ExitUsage, Err: fmt.Errorf("%s %s", command, missing),
		Hint: privileged,
	}
}

// NeedCgroups makes the cgroups of pods possible in a container, or returns an error; see cgroup.Tree.LeaveRoot. With
// systemd as the driver it does nothing: systemd, which then creates them, has left the root itself.
func NeedCgroups(command string, driver oci.Driver) error {
	if driver == oci.Systemd {
		return nil
	}
	tree, err := cgroup.Open()
	if err == nil {
		err = tree.LeaveRoot()
	}
	if err != nil {
		return &Error{Code: ExitUsage, Err: fmt.Errorf("%s cannot create cgroups: %w", command, err), Hint: privileged}
	}
	return nil
}
