package runcshim

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// listenerFD is the file descriptor of a serving shim's socket.
const listenerFD = 3

// ownSocket returns a function that removes the socket that this process serves on, if it is a
// serving shim. A shim itself removes the socket named after its container, but the socket of a
// group of containers is named after the group, so it would remain for ever: one for each start of
// a pod.
func ownSocket() (remove func()) {
	at, err := unix.Getsockname(listenerFD)
	if err != nil {
		return func() {} // this shim process does not serve: it starts another shim or cleans up after one
	}
	address, ok := at.(*unix.SockaddrUnix)
	if !ok || !filepath.IsAbs(address.Name) {
		return func() {}
	}
	var own unix.Stat_t
	if unix.Lstat(address.Name, &own) != nil {
		return func() {}
	}
	return func() {
		// Another shim of the group may have created its socket meanwhile. The inode number alone
		// does not identify a file, because it may be reused.
		var now unix.Stat_t
		if unix.Lstat(address.Name, &now) == nil && now.Ino == own.Ino && now.Ctim == own.Ctim {
			_ = os.Remove(address.Name)
		}
	}
}
