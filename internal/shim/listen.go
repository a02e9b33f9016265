package shim

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// accepts is the kernel's flag, in /proc/net/unix, of a socket that accepts connections.
const accepts = "00010000"

// mostName is the size of the longest name of a socket, in bytes.
const mostName = len(unix.RawSockaddrUnix{}.Path)

// Listening returns the sockets that a process listens on with the file name of a group's shim, for the containerd with
// that address and namespace, in any directory. They have the form of their links in /proc/PID/fd.
func Listening(address, namespace, group string) (sockets []string, err error) {
	text, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil, fmt.Errorf("listing listening sockets: %w", err)
	}
	name := socketName(filepath.Join(address, namespace), group)
	for line := range strings.Lines(string(text)) {
		// The kernel writes names as they are, and every user may give a socket a name with newlines and so with
		// whole lines. Such a line is no longer than a name. A true one is: it has 51 bytes before the path at least,
		// and the shim's name has 64.
		if len(line) <= mostName {
			continue
		}
		// The columns are: number, references, protocol, flags, type, state, inode, path.
		if f := strings.Fields(line); len(f) == 8 && f[3] == accepts && filepath.Base(f[7]) == name {
			sockets = append(sockets, "socket:["+f[6]+"]")
		}
	}
	return sockets, nil
}

// Holds reports whether a process has one of the sockets open. It is false if the process has
// ended.
func Holds(pid int, sockets []string) bool {
	entries, err := os.ReadDir(proc(pid, "fd"))
	if err != nil {
		return false // the process has ended
	}
	for _, e := range entries {
		target, _ := os.Readlink(proc(pid, filepath.Join("fd", e.Name())))
		if slices.Contains(sockets, target) {
			return true
		}
	}
	return false
}
