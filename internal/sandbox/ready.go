package sandbox

import (
	"fmt"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

// Paths are where a sandbox's namespaces are, for its containers.
type Paths struct {
	// Net, IPC and UTS are the namespaces' paths; "" means the host's.
	Net, IPC, UTS string
	// PID is the path of the process namespace that all containers share; "" where each has its own.
	PID string
	// Shm is the directory of the shared memory that all containers have; "" where each has its own.
	Shm string
	// User is the path of the namespace of the pod's own users, and FirstUser the first of the host's users that are
	// the pod's; "" and 0 where its users are the host's.
	User      string
	FirstUser uint32
	// CgroupDriver is that of the pod's cgroups.
	CgroupDriver oci.Driver
}

// Paths returns where the namespaces of the complete sandbox b are.
func (s *Store) Paths(b pod.Sandbox) Paths {
	var out Paths
	if b.Details.Systemd {
		out.CgroupDriver = oci.Systemd
	}
	if !b.Details.HostNetwork {
		out.Net, out.UTS = s.file(b.ID, pinNet), s.file(b.ID, pinUTS)
	}
	if !b.Details.HostIPC {
		out.IPC = s.file(b.ID, pinIPC)
	} else {
		out.Shm = hostShm
	}
	if b.Details.Shm {
		out.Shm = s.file(b.ID, shmName)
	}
	if b.Details.PauseParent != "" {
		out.PID = s.file(b.ID, pinPID)
	}
	if b.Details.FirstUser != 0 {
		out.User, out.FirstUser = s.file(b.ID, pinUser), b.Details.FirstUser
	}
	return out
}

// pins are the namespaces that a sandbox has for itself, but for that of processes.
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

// Ready reports that the sandbox b is complete and that all that it pinned is still there. It asks the kernel each
// time: nothing tells of a pin that somebody unmounts.
func (s *Store) Ready(b pod.Sandbox) bool {
	now, err := s.machine()
	if err != nil || !isID(b.ID) || !b.Details.Complete || b.Boot != now.boot {
		return false
	}
	for _, name := range pins(b.Details) {
		var st unix.Stat_t
		if unix.Stat(s.file(b.ID, name), &st) != nil || st.Dev != now.nsfs {
			return false
		}
	}
	return (!b.Details.Shm || s.mountedShm(b.ID)) && (b.Details.PauseParent == "" || isPaused(b.Details))
}

// mountedShm reports that shared memory is mounted in the sandbox's directory.
func (s *Store) mountedShm(id string) bool {
	var dir, shm unix.Stat_t
	return unix.Stat(s.path(id), &dir) == nil && unix.Stat(s.file(id, shmName), &shm) == nil && dir.Dev != shm.Dev
}

// machine is what readiness is judged by.
type machine struct {
	boot string
	// nsfs is the device of the filesystem of all namespaces: only a pin is on it.
	nsfs uint64
}

func thisMachine() (machine, error) {
	boot, err := sys.BootID()
	if err != nil {
		return machine{}, err
	}
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &st); err != nil {
		return machine{}, fmt.Errorf("inspecting the own network namespace: %w", err)
	}
	return machine{boot: boot, nsfs: st.Dev}, nil
}
