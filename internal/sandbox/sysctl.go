package sandbox

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

// Where shared memory is mounted: the machine's, and a pod's in its sandbox's directory.
const (
	hostShm = "/dev/shm"
	shmName = "shm"
)

// unprivileged permits every user in the thread's network namespace to bind low ports and to send
// pings: both affect the pod only. Pods of Kubernetes have the same on containerd 2. If the sysctls
// cannot be written, as with a read-only /proc/sys, the pod runs without them.
func unprivileged() {
	_ = os.WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", []byte("0"), 0)
	_ = os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 2147483647"), 0)
}

// setSysctls sets the pod's sysctls in its namespaces, after its network is connected. users is the
// first host user ID of the pod's user namespace, 0 if it has none: only root of that user
// namespace may change the sysctls of the pod's IPC namespace.
func (s *Store) setSysctls(id string, p *v1.Pod, users uint32) error {
	if p.Spec.SecurityContext == nil || len(p.Spec.SecurityContext.Sysctls) == 0 {
		return nil
	}
	sysctls := p.Spec.SecurityContext.Sysctls
	return sys.OnOwnThread(func() error {
		entered := map[string]string{"Net": pinNet, "IPC": pinIPC}
		for _, sysctl := range sysctls {
			// A sysctl that is not namespaced would change the machine.
			ns := pod.SysctlNamespace(sysctl.Name)
			if ns == "" || ns == "Net" && p.Spec.HostNetwork || ns == "IPC" && p.Spec.HostIPC {
				return fmt.Errorf("sysctl %s is the machine's, not the pod's", sysctl.Name)
			}
			if name := entered[ns]; name != "" {
				if err := enter(s.dir.file(id, name)); err != nil {
					return fmt.Errorf("entering the pod's %s namespace: %w", name, err)
				}
				entered[ns] = ""
			}
			who := uint32(0)
			if ns == "IPC" {
				who = users
			}
			err := asUser(who, func() error {
				return os.WriteFile("/proc/sys/"+pod.SysctlFile(sysctl.Name), []byte(sysctl.Value), 0)
			})
			if err != nil {
				return fmt.Errorf("setting sysctl %s to %q: %w", sysctl.Name, sysctl.Value, err)
			}
		}
		return nil
	})
}

// asUser runs f with that host user ID, if it is not 0, on the calling thread only: the library's
// setresuid would change all threads of the process.
func asUser(user uint32, f func() error) error {
	if user == 0 {
		return f()
	}
	become := func(user uint32) error {
		const unchanged = ^uintptr(0)
		if _, _, failed := unix.RawSyscall(unix.SYS_SETRESUID, unchanged, uintptr(user), unchanged); failed != 0 {
			return os.NewSyscallError("setresuid", failed)
		}
		return nil
	}
	if err := become(user); err != nil {
		return err
	}
	return errors.Join(f(), become(0))
}

// enter moves the calling thread into the namespace that is pinned at path.
func enter(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Setns(int(f.Fd()), 0)
}

// sharesMemory reports whether the pod has several containers that share memory.
func sharesMemory(p *v1.Pod) bool {
	return !p.Spec.HostIPC && len(p.Spec.Containers)+len(p.Spec.InitContainers) > 1
}

// mountShm mounts the pod's shared memory, which belongs to owner, with the size that Kubernetes'
// runtimes give it.
func mountShm(path string, owner uint32) error {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	options := fmt.Sprintf("mode=1777,size=65536k,uid=%d,gid=%d", owner, owner)
	return sys.MountFS("tmpfs", "shm", path, options, sys.AllowNothing)
}

// unmountShm removes the shared memory; it succeeds if there is none.
func unmountShm(path string) error {
	for {
		var st unix.Statfs_t
		err := unix.Statfs(path, &st)
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		if err != nil {
			return &os.PathError{Op: "statfs", Path: path, Err: err}
		}
		if err := sys.Detach(path); errors.Is(err, sys.ErrNotMounted) {
			return removeFile(path)
		} else if err != nil {
			return err
		}
	}
}
