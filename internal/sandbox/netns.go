package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/sys"
)

// The file names of the pins, which are also the kernel's names below /proc/<pid>/ns.
const (
	pinNet = "net"
	pinIPC = "ipc"
	pinUTS = "uts"
)

var allPins = [...]string{pinNet, pinIPC, pinUTS}

// pin creates new namespaces and a bind mount of each in dir. It sets the hostname if uts is among
// them.
func pin(dir string, names []string, hostname string, step func(string)) error {
	return sys.OnOwnThread(func() error {
		flags := map[string]int{pinNet: unix.CLONE_NEWNET, pinIPC: unix.CLONE_NEWIPC, pinUTS: unix.CLONE_NEWUTS}
		want := 0
		for _, name := range names {
			want |= flags[name]
		}
		if err := unix.Unshare(want); err != nil {
			return fmt.Errorf("making namespaces: %w", err)
		}
		if want&unix.CLONE_NEWUTS != 0 {
			if err := unix.Sethostname([]byte(hostname)); err != nil {
				return fmt.Errorf("setting the hostname %q: %w", hostname, err)
			}
		}
		if want&unix.CLONE_NEWNET != 0 {
			unprivileged()
		}
		for _, name := range names {
			if err := pinOne(filepath.Join(dir, name), name, step); err != nil {
				return fmt.Errorf("pinning the %s namespace: %w", name, err)
			}
		}
		return nil
	})
}

func pinOne(path, name string, step func(string)) error {
	return pinNamespace(path, "/proc/thread-self/ns/"+name, name, step)
}

// pinNamespace bind-mounts the namespace file source on path.
func pinNamespace(path, source, name string, step func(string)) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return err
	}
	f.Close()
	step(name + " file")
	if err := sys.BindOne(source, path); err != nil {
		return err
	}
	step(name + " pin")
	return nil
}

// pinned reports whether a namespace is mounted at path.
func pinned(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == unix.NSFS_MAGIC
}

// unpin unmounts the namespaces at path, if any, and removes the file. It unmounts nothing else.
func unpin(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a pin but a %s: not touched", path, info.Mode().Type())
	}
	for pinned(path) {
		if err := sys.Detach(path); err != nil {
			return err
		}
	}
	return removeFile(path)
}
