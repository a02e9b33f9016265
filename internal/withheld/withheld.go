// Package withheld gives processes what no disk may have: the values of Secrets in their environment and
// on their command line. containerd and its shim write a container's spec to their directories. So it has
// a mark in their place, and runc is run by way of podrun's own binary, which puts them in, in memory. It
// does not own the file that they wait in, which goes with the pod.
package withheld

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// name is what podrun's binary is called when it stands in for runc.
const name = "podrun-runc"

// behind is the link beside the stand-in that says what it stands in for; without one it is runc.
const behind = "runtime"

// variable is the one that has the mark.
const variable = "PODRUN_WITHHELD"

// Process is the process of a container as it shall be.
type Process struct {
	Args []string `json:"args"`
	// Env are NAME=value.
	Env []string `json:"env"`
}

// Write keeps p in a file, which must be in memory.
func Write(path string, p Process) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// Mark is the variable that stands for what Write put into a file.
func Mark(path string) string { return variable + "=" + path }

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
		err = forCreate(args[command:])
	case args[command] == "exec":
		err = forExec(args[command:])
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

// commandAt is where runc's command is, after the flags that are common to all; -1: nowhere.
func commandAt(args []string) int {
	for i := 0; i < len(args); i++ {
		switch {
		case !strings.HasPrefix(args[i], "-"):
			return i
		case slices.Contains([]string{"--root", "--log", "--log-format", "--rootless", "--criu"}, args[i]):
			i++ // its value
		}
	}
	return -1
}

// flag returns where the value of a flag is.
func flag(args []string, names ...string) (int, error) {
	for i := range args {
		if slices.Contains(names, args[i]) && i+1 < len(args) {
			return i + 1, nil
		}
	}
	return 0, fmt.Errorf("%s has no %s", args[0], names[0])
}

// forCreate makes runc take a bundle with what was withheld. It is beside the file that has it, in memory.
func forCreate(args []string) error {
	at, err := flag(args, "--bundle", "-b")
	if err != nil {
		return err
	}
	bundle := args[at]
	spec, err := read(filepath.Join(bundle, "config.json"))
	if err != nil {
		return err
	}
	process, _ := spec["process"].(map[string]any)
	file, found := take(process)
	if !found {
		return nil
	}
	kept, err := load(file)
	if err != nil {
		return err
	}
	process["args"], process["env"] = kept.Args, kept.Env
	root, _ := spec["root"].(map[string]any)
	if path, _ := root["path"].(string); !filepath.IsAbs(path) {
		root["path"] = filepath.Join(bundle, path)
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	own := file + ".bundle"
	if err := os.Mkdir(own, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	args[at] = own
	return os.WriteFile(filepath.Join(own, "config.json"), text, 0o600)
}

// forExec gives a further process of a container the variables that were withheld from it.
func forExec(args []string) error {
	at, err := flag(args, "--process", "-p")
	if err != nil {
		return nil // it is told on the command line, and so by nobody who knows of this
	}
	process, err := read(args[at])
	if err != nil {
		return err
	}
	file, found := take(process)
	if !found {
		return nil
	}
	kept, err := load(file)
	if err != nil {
		return err
	}
	process["env"] = complete(process["env"], kept.Env)
	text, err := json.Marshal(process)
	if err != nil {
		return err
	}
	fd, err := unix.MemfdCreate("process", 0) // runc inherits it
	if err != nil {
		return err
	}
	args[at] = fmt.Sprintf("/proc/self/fd/%d", fd)
	return os.WriteFile(args[at], text, 0o600)
}

// take takes the mark out of a process's variables.
func take(process map[string]any) (file string, found bool) {
	all, _ := process["env"].([]any)
	for i, v := range all {
		text, _ := v.(string)
		if file, found = strings.CutPrefix(text, variable+"="); found {
			process["env"] = slices.Delete(all, i, i+1)
			return file, true
		}
	}
	return "", false
}

// complete adds those variables that are not there yet.
func complete(there any, more []string) []string {
	var out []string
	all, _ := there.([]any)
	for _, v := range all {
		if text, ok := v.(string); ok {
			out = append(out, text)
		}
	}
	for _, v := range more {
		begin, _, _ := strings.Cut(v, "=")
		if !slices.ContainsFunc(out, func(o string) bool { return strings.HasPrefix(o, begin+"=") }) {
			out = append(out, v)
		}
	}
	return out
}

// read reads a JSON object; numbers stay as they are written.
func read(path string) (map[string]any, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	decoder := json.NewDecoder(f)
	decoder.UseNumber()
	var out map[string]any
	if err := decoder.Decode(&out); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return out, nil
}

func load(path string) (Process, error) {
	var p Process
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	return p, err
}
