// Package secretenv gives processes what no disk may have: the values of Secrets in their environment and
// on their command line. containerd and its shim write a container's spec to their directories. So it is
// without them, and runc is run by way of podrun's own binary, which puts them in, in memory. That binary
// is root on the machine: it believes the container's ID, which is an argument of runc's, and its own path,
// and nothing that a manifest or an image says, as variables. It does not own the memory that they wait in,
// which goes with the pod.
package secretenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
)

// name is what podrun's binary is called when it stands in for runc.
const name = "podrun-runc"

// behind is the link beside the stand-in that says what it stands in for; without one it is runc.
const behind = "runtime"

// Process is the process of a container as it shall be.
type Process struct {
	Args []string `json:"args"`
	// Env are NAME=value.
	Env []string `json:"env"`
}

// StandFor makes the stand-in at the path run another binary than runc, which takes runc's commands.
func StandFor(path, binary string) error {
	link := filepath.Join(filepath.Dir(path), behind)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	err := os.Symlink(binary, link)
	if !errors.Is(err, os.ErrExist) {
		return err
	}
	if is, err := os.Readlink(link); err != nil || is != binary {
		return errors.Join(err, fmt.Errorf("%s is of %q, not of %q", link, is, binary))
	}
	return nil
}

// Dispatch runs runc if that is what the binary was called for, and says whether it was. It returns only
// when it could not.
func Dispatch(args []string) (exit int, handled bool) {
	if len(args) == 0 || filepath.Base(args[0]) != name {
		return 0, false
	}
	err := run(args[0], slices.Clone(args[1:]))
	fmt.Fprintln(os.Stderr, "podrun: running runc:", err)
	return 1, true
}

// program is what the stand-in that was called by its path stands in for.
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
