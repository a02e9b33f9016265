package shim

import (
	"os"
	"path/filepath"
	"strings"
)

// identity is whose a process is: its user IDs, and its namespaces of processes and of mounts. What is not known is "".
type identity struct{ users, pids, mounts string }

// ours returns the identity of this thread.
func ours() identity { return identityOf("/proc/thread-self") }

// identityOf returns the identity of the process that has a directory of /proc. Unlike the user IDs in it, its owner is
// root for each process that others may not inspect.
func identityOf(dir string) (i identity) {
	status, _ := os.ReadFile(filepath.Join(dir, "status"))
	_, rest, _ := strings.Cut(string(status), "\nUid:") // the name of the process, before it, has no newlines
	i.users, _, _ = strings.Cut(rest, "\n")
	i.pids, _ = os.Readlink(filepath.Join(dir, "ns/pid"))
	i.mounts, _ = os.Readlink(filepath.Join(dir, "ns/mnt"))
	return i
}

// argsOf returns the command line of a process that may be a shim of whoever has the identity own; none if there is no
// such process. Reading one waits for the lock of the process's memory (mmap_lock in the kernel), which whoever
// determines what the process does can hold as long as they like: a user of the machine, or a container. So it is read
// only of processes that have the same users and PID namespace, which no container has that is not given the machine's;
// and of those in another mount namespace, as containerd may have one with its shims, only if the program has the name
// of a shim. For what is looked at before, the kernel takes no such lock.
func argsOf(pid int, own identity) []string {
	theirs := identityOf(proc(pid, ""))
	if theirs.users == "" || theirs.users != own.users || theirs.pids == "" || theirs.pids != own.pids {
		return nil
	}
	if (theirs.mounts == "" || theirs.mounts != own.mounts) && !isNamed(pid) {
		return nil
	}
	args, _ := list(pid, "cmdline")
	return args
}

// isNamed reports whether a process's program has the name of a shim.
func isNamed(pid int) bool {
	path, _ := os.Readlink(proc(pid, "exe"))
	return strings.Contains(filepath.Base(path), prefix)
}
