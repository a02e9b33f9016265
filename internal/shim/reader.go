package shim

import (
	"os"
	"path/filepath"
	"strings"
)

// argsOf returns the command line of a process that may be a shim; none if there is no such process. Reading one waits
// for the lock of the process's memory (mmap_lock in the kernel), which whoever determines what the process does can
// hold as long as they like: a user of the machine, or a container. So it is read only of processes that have the same
// user and PID namespace as this one, which no container has that is not given the machine's; and of those in another
// mount namespace, as containerd may have one with its shims, only if the program has the name of a shim. For what is
// looked at before, the kernel takes no such lock.
func argsOf(pid int) []string {
	users := usersOf(proc(pid, "status"))
	if users == "" || users != usersOf("/proc/thread-self/status") || !shares(pid, "pid") ||
		!shares(pid, "mnt") && !isNamed(pid) {
		return nil
	}
	args, _ := list(pid, "cmdline")
	return args
}

// shares reports whether a process has the same namespace of a kind as this one.
func shares(pid int, kind string) bool {
	theirs, err := os.Readlink(proc(pid, "ns/"+kind))
	own, failed := os.Readlink("/proc/thread-self/ns/" + kind)
	return err == nil && failed == nil && theirs == own
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
