package sandbox

import (
	"fmt"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

// Paths are the paths of a sandbox's namespaces, for its containers.
type Paths struct {
	// Net, IPC and UTS are the paths of the namespaces; "" means the host's.
	Net, IPC, UTS string
	// PID is the path of the process namespace that all containers share; "" if each container has
	// its own.
	PID string
	// Shm is the directory of the shared memory that all containers share; "" if each container has
	// its own.
	Shm string
	// User is the path of the pod's user namespace, and FirstUser the first of the host user IDs
	// that it maps; "" and 0 if the pod uses the host's user namespace.
	User      string
	FirstUser uint32
	// CgroupDriver is the driver of the pod's cgroups.
	CgroupDriver oci.Driver
}

// Paths returns the paths of the namespaces of the complete sandbox b.
func (s *Store) Paths(b pod.Sandbox) Paths {
	var out Paths
	if b.Details.Systemd {
		out.CgroupDriver = oci.Systemd
	}
	if out.Net = s.Network(b); out.Net != "" {
		out.UTS = s.dir.file(b.ID, pinUTS)
	}
	if !b.Details.HostIPC {
		out.IPC = s.dir.file(b.ID, pinIPC)
	} else {
		out.Shm = hostShm
	}
	if b.Details.Shm {
		out.Shm = s.dir.file(b.ID, shmName)
	}
	if b.Details.PauseParent != "" {
		out.PID = s.dir.file(b.ID, pinPID)
	}
	if b.Details.FirstUser != 0 {
		out.User, out.FirstUser = s.dir.file(b.ID, pinUser), b.Details.FirstUser
	}
	return out
}

// Network returns the path of the network namespace of the complete sandbox b; "" means the host's.
func (s *Store) Network(b pod.Sandbox) string {
	if b.Details.HostNetwork {
		return ""
	}
	return s.dir.file(b.ID, pinNet)
}

// pins returns the namespaces that a sandbox does not share with the host, except for the process
// namespace.
func pins(d pod.SandboxDetails) []string {
	var out []string
	if !d.HostNetwork {
		out = append(out, pinNet)
	}
	if !d.HostIPC {
		out = append(out, pinIPC)
	}
	if !d.HostNetwork {
		out = append(out, pinUTS)
	}
	if d.FirstUser != 0 {
		out = append(out, pinUser)
	}
	return out
}

// Ready reports whether the sandbox b is complete and everything that it pinned still exists. It
// asks the kernel in every call, because no event reports that a pin was unmounted.
func (s *Store) Ready(b pod.Sandbox) bool {
	now, err := s.machine()
	if err != nil || !isID(b.ID) || !b.Details.Complete || b.Boot != now.boot {
		return false
	}
	for _, name := range pins(b.Details) {
		var st unix.Stat_t
		if unix.Stat(s.dir.file(b.ID, name), &st) != nil || st.Dev != now.nsfs {
			return false
		}
	}
	return (!b.Details.Shm || s.dir.mountedShm(b.ID)) && (b.Details.PauseParent == "" || isPaused(b.Details))
}

// mountedShm reports whether shared memory is mounted in the sandbox's directory.
func (d *directory) mountedShm(id string) bool {
	var dir, shm unix.Stat_t
	return unix.Stat(d.path(id), &dir) == nil && unix.Stat(d.file(id, shmName), &shm) == nil && dir.Dev != shm.Dev
}

// machine is what Ready compares sandboxes with.
type machine struct {
	boot string
	// nsfs is the device of the file system of all namespaces: a file on it can only be a pin.
	nsfs uint64
}

func thisMachine() (machine, error) {
	boot, err := sys.BootID()
	if err != nil {
		return machine{}, err
	}
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &st); err != nil {
		return machine{}, fmt.Errorf("inspecting podrun's network namespace: %w", err)
	}
	return machine{boot: boot, nsfs: st.Dev}, nil
}
