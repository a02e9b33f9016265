package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/sys"
)

// A pod with hostUsers: false has a user namespace that owns its other namespaces. It maps the
// pod's user IDs 0 to 65535 to host user IDs that neither another pod nor a user of the machine has.
const pinUser = "user"

// The range of host user IDs for pods: what https://systemd.io/UIDS-GIDS leaves unused, and above the IDs that sssd
// gives to users of a domain by default (ldap_idmap_range_max). Below, systemd-nsresourced would give a pod's IDs to
// any user of the machine who asks for them, because it knows those in use only if they are its own or have a name.
const firstUsers, endOfUsers = 0x77390000, 0x7ffe0000

// The range where the former is not mapped, as in an unprivileged container of LXC: systemd leaves it to containers.
const firstInContainer, endInContainer = 0x80000, 0x70000000

// hasUsers reports whether the pod gets a user namespace of its own.
func hasUsers(p *v1.Pod) bool { return p.Spec.HostUsers != nil && !*p.Spec.HostUsers }

// chooseUsers returns the first host user ID for the sandbox id. IDs in taken are the first ones of
// other sandboxes, and given those of users of the machine and of other user namespaces. The search starts at a
// position derived from the sandbox ID, so that podruns that begin at the same time hardly ever choose the same range.
func chooseUsers(id string, own []idRange, taken map[uint32]bool, given []idRange) (uint32, error) {
	first, end := uint64(firstUsers), uint64(endOfUsers)
	if !slices.ContainsFunc(own, func(r idRange) bool { return r.first <= first && r.first+r.count >= end }) {
		first, end = firstInContainer, endInContainer
	}
	ranges := (end - first) / oci.Users
	start, err := strconv.ParseUint(id[:8], 16, 32)
	if err != nil {
		return 0, err
	}
	for i := range ranges {
		users := uint32(first + (start+i)%ranges*oci.Users)
		if !taken[users] && !slices.ContainsFunc(given, func(r idRange) bool { return r.overlaps(users) }) {
			return users, nil
		}
	}
	return 0, errors.New("no users are left for a pod with hostUsers: false")
}

// firstUserName is the file that records which user IDs a sandbox has, for other podrun processes.
const firstUserName = "first-user"

// allocateUsers allocates user IDs to the sandbox id that no other sandbox of the run directory
// has.
func (d *directory) allocateUsers(id string) (uint32, error) {
	all, err := sys.LockExisting(d.root)
	if err != nil {
		return 0, err
	}
	defer all.Unlock()
	taken, err := d.usersInUse()
	if err != nil {
		return 0, err
	}
	given, err := subordinateIDs(subordinateFiles())
	if err != nil {
		return 0, fmt.Errorf("hostUsers: false: %w", err)
	}
	mapped, err := mappedIDs("/proc")
	if err != nil {
		return 0, fmt.Errorf("hostUsers: false: %w", err)
	}
	users, err := chooseUsers(id, idsIn("/proc/self/uid_map", 0), taken, append(given, mapped...))
	if err != nil {
		return 0, err
	}
	return users, os.Symlink(strconv.FormatUint(uint64(users), 10), d.file(id, firstUserName))
}

// usersInUse returns the first user IDs of all sandboxes, including those of the former version. A
// file that is missing or invalid reserves no IDs.
func (d *directory) usersInUse() (map[uint32]bool, error) {
	found, err := names(d.root)
	if err != nil {
		return nil, err
	}
	taken := map[uint32]bool{}
	for _, name := range found {
		if id, isIntent := strings.CutSuffix(name, intentSuffix); isIntent {
			if e, err := d.readIntent(id); err == nil && e != nil {
				taken[e.Users] = true
			}
			continue
		}
		text, _ := os.Readlink(d.file(name, firstUserName))
		if users, err := strconv.ParseUint(text, 10, 32); err == nil {
			taken[uint32(users)] = true
		}
	}
	return taken, nil
}

// pinWithUsers is pin for a pod with a user namespace of its own; users is the first host user ID.
// A child process creates the namespaces, because a thread of a multi-threaded process cannot
// create a user namespace, and is killed when they are pinned.
func pinWithUsers(dir string, names []string, hostname string, users uint32, step func(string)) error {
	return sys.OnOwnThread(func() error {
		pid, err := forkUsers(users)
		if err != nil {
			return fmt.Errorf("making namespaces with users of the pod's own: %w", err)
		}
		defer func() {
			_ = unix.Kill(pid, unix.SIGKILL)
			_, _ = syscall.Wait4(pid, nil, 0, nil)
		}()
		step("users")
		for _, name := range names {
			if err := pinNamespace(
				filepath.Join(dir, name), fmt.Sprintf("/proc/%d/ns/%s", pid, name), name, step,
			); err != nil {
				return fmt.Errorf("pinning the %s namespace: %w", name, err)
			}
		}
		for _, name := range []string{pinNet, pinUTS} {
			if err := enter(filepath.Join(dir, name)); err != nil {
				return fmt.Errorf("entering the pod's %s namespace: %w", name, err)
			}
		}
		if err := unix.Sethostname([]byte(hostname)); err != nil {
			return fmt.Errorf("setting the hostname %q: %w", hostname, err)
		}
		unprivileged()
		return nil
	})
}

// forkUsers starts the pause program in new namespaces of every kind that is pinned. It is killed
// when the calling thread ends.
func forkUsers(users uint32) (pid int, err error) {
	program, err := pauseProgram(runtime.GOARCH)
	if err != nil {
		return 0, err
	}
	fd, err := unix.MemfdCreate(pauseName, unix.MFD_CLOEXEC)
	if err != nil {
		return 0, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), pauseName)
	defer f.Close()
	if _, err := f.Write(program); err != nil {
		return 0, err
	}
	mapping := []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(users), Size: oci.Users}}
	return syscall.ForkExec("/proc/self/fd/"+strconv.Itoa(fd), []string{pauseName}, &syscall.ProcAttr{
		Dir: "/", Env: []string{},
		Sys: &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
			UidMappings: mapping, GidMappings: mapping, GidMappingsEnableSetgroups: true,
			Pdeathsig: syscall.SIGKILL, Setsid: true,
		},
	})
}
