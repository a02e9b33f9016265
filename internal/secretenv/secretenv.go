// Package secretenv gives containers' processes what must not be written to a disk: the values of
// Secrets in their environment and on their command line.
//
// containerd and its shim write a container's spec to their directories. So package
// runtime/containerd/start omits these values from the spec, the shim runs podrun's own binary
// instead of runc (the stand-in), and that binary adds the values to a copy of the spec in memory
// before it executes runc. The binary runs as root on the host, so it trusts only its own path and
// the container's ID, which is an argument to runc: nothing that a manifest or an image can set,
// such as variables.
//
// The package does not own the memory (a tmpfs of the pod) that has the values: it is removed with
// the pod. Start reading at Write, which puts the values there, and Dispatch, which is the
// stand-in.
package secretenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"

	"podrun.io/podrun/internal/sys/executable"
)

// name is the file name by which podrun's binary knows that it is called as the stand-in.
const name = "podrun-runc"

// behind is the symbolic link beside the stand-in that names the binary to execute; without one it
// is runc.
const behind = "runtime"

// Process is the complete command line and environment of a container's process.
type Process struct {
	Args []string `json:"args"`
	// Env has entries of the form NAME=value.
	Env []string `json:"env"`
}

// Install makes this program the stand-in at path, for binary, or for runc if binary is empty. The binary must take
// runc's commands. It is an error if the stand-in is for another binary already.
func Install(path, binary string) error {
	if binary != "" {
		if err := standFor(path, binary); err != nil {
			return err
		}
	}
	return executable.Link(path)
}

// standFor makes the stand-in at path execute binary instead of runc.
func standFor(path, binary string) error {
	link := filepath.Join(filepath.Dir(path), behind)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	err := os.Symlink(binary, link)
	if !errors.Is(err, os.ErrExist) {
		return err
	}
	if is, err := os.Readlink(link); err != nil || is != binary {
		return errors.Join(err, fmt.Errorf("%s links to %q, not to %q", link, is, binary))
	}
	return nil
}

// Dispatch executes runc if this binary was called as the stand-in, and reports whether it was. If
// it executes runc, it does not return; it returns only for another name or after an error, which
// it prints.
func Dispatch(args []string) (exit int, handled bool) {
	if len(args) == 0 || filepath.Base(args[0]) != name {
		return 0, false
	}
	err := run(args[0], slices.Clone(args[1:]))
	fmt.Fprintln(os.Stderr, "podrun: running runc:", err)
	return 1, true
}

// program returns the binary that the stand-in at path executes.
func program(path string) (string, error) {
	binary, err := os.Readlink(filepath.Join(filepath.Dir(path), behind))
	if errors.Is(err, os.ErrNotExist) {
		binary, err = "runc", nil
	}
	if err != nil {
		return "", err
	}
	return exec.LookPath(binary)
}

func run(path string, args []string) error {
	command := commandAt(args)
	var err error
	switch {
	case command < 0:
	case args[command] == "create":
		err = forCreate(path, args[command:])
	case args[command] == "exec":
		err = forExec(path, args[command:])
	}
	if err != nil {
		return err
	}
	runc, err := program(path)
	if err != nil {
		return err
	}
	return syscall.Exec(runc, append([]string{runc}, args...), os.Environ())
}
