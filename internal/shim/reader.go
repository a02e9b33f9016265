package shim

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// reader reads command lines of processes. Reading one waits for the lock of the process's memory (mmap_lock in the
// kernel), which whoever determines what the process does can hold as long as they like: a user of the machine, or
// a container. So it reads only those of processes that have the same user as this one, and the mount namespace of
// this one or of containerd: no container has these. For all else that it reads of a process, the kernel takes no such
// lock.
type reader struct {
	// flags may have -address, containerd's socket.
	flags []string
	// served is containerd's mount namespace, once it is known.
	served string
}

// args returns the command line of a process; none if there is no such process, or it must not be read.
func (r *reader) args(pid int) []string {
	users, ours := usersOf(proc(pid, "status")), usersOf("/proc/thread-self/status")
	if users == "" || users != ours {
		return nil
	}
	theirs, err := os.Readlink(proc(pid, "ns/mnt"))
	own, failed := os.Readlink("/proc/thread-self/ns/mnt")
	if err != nil || failed != nil || theirs != own && (!isNamed(pid) || theirs != r.containerds()) {
		return nil
	}
	args, _ := list(pid, "cmdline")
	return args
}

// usersOf returns the user IDs in a file /proc/PID/status. Unlike these, the owner of /proc/PID is root for each
// process that others may not inspect.
func usersOf(file string) string {
	text, _ := os.ReadFile(file)
	_, rest, _ := strings.Cut(string(text), "\nUid:") // the name of the process, before it, has no newlines
	users, _, _ := strings.Cut(rest, "\n")
	return users
}

// isNamed reports whether a process's program has the name of a shim.
func isNamed(pid int) bool {
	path, _ := os.Readlink(proc(pid, "exe"))
	return strings.Contains(filepath.Base(path), prefix)
}

// containerds returns the mount namespace of containerd, which its shims have too, "" if it is not known.
func (r *reader) containerds() string {
	i := slices.Index(r.flags, "-address")
	if r.served != "" || i < 0 {
		return r.served
	}
	conn, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	if unix.Connect(conn, &unix.SockaddrUnix{Name: r.flags[i+1]}) == nil {
		if peer, err := unix.GetsockoptUcred(conn, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			r.served, _ = os.Readlink(proc(int(peer.Pid), "ns/mnt"))
		}
	}
	_ = unix.Close(conn)
	return r.served
}
