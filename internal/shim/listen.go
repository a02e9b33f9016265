package shim

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// accepts is the kernel's flag, in /proc/net/unix, of a socket that accepts connections.
const accepts = "00010000"

// Listening returns the sockets with that file name, in any directory, that a process listens on,
// in the form of their links in /proc/PID/fd.
func Listening(name string) (sockets []string, err error) {
	text, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil, fmt.Errorf("listing listening sockets: %w", err)
	}
	for line := range strings.Lines(string(text)) {
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
