package shim

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// accepts is the flag of the kernel's for a socket that is listened at.
const accepts = "00010000"

// Listening are the sockets of that name, in whatever directory, that somebody listens at.
func Listening(name string) (sockets []string, err error) {
	text, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil, fmt.Errorf("looking who listens: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		// Number, references, protocol, flags, type, state, inode, path.
		if f := strings.Fields(line); len(f) == 8 && f[3] == accepts && filepath.Base(f[7]) == name {
			sockets = append(sockets, "socket:["+f[6]+"]")
		}
	}
	return sockets, nil
}

// Holds reports that a process has one of the sockets.
func Holds(pid int, sockets []string) bool {
	entries, err := os.ReadDir(proc(pid, "fd"))
	if err != nil {
		return false // it has ended
	}
	for _, e := range entries {
		target, _ := os.Readlink(proc(pid, filepath.Join("fd", e.Name())))
		if slices.Contains(sockets, target) {
			return true
		}
	}
	return false
}
