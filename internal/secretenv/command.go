package secretenv

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
)

// commandAt returns the index of runc's command, after the global flags; -1 if there is none.
func commandAt(args []string) int {
	for i := 0; i < len(args); i++ {
		switch {
		case !strings.HasPrefix(args[i], "-"):
			return i
		case slices.Contains([]string{"--root", "--log", "--log-format", "--rootless", "--criu"}, args[i]):
			i++ // skip the flag's value
		}
	}
	return -1
}

// flag returns the index of the value of a flag.
func flag(args []string, names ...string) (int, error) {
	for i := range args {
		if slices.Contains(names, args[i]) && i+1 < len(args) {
			return i + 1, nil
		}
	}
	return 0, fmt.Errorf("%s has no %s", args[0], names[0])
}

// of returns the withheld values of the container whose ID is the last argument of a command.
// standIn is the path of the stand-in.
func of(standIn string, args []string) (*kept, error) {
	if !filepath.IsAbs(standIn) {
		return nil, fmt.Errorf("the path %s is not absolute", standIn)
	}
	return find(layout.RootOfStandIn(standIn), args[len(args)-1])
}

// forCreate changes the arguments of runc's create so that it uses a bundle with the withheld
// values. The bundle is beside the file with the values, in memory.
func forCreate(standIn string, args []string) error {
	at, err := flag(args, "--bundle", "-b")
	if err != nil {
		return err
	}
	kept, err := of(standIn, args)
	if err != nil {
		return err
	}
	defer kept.dir.Close()
	bundle := args[at]
	spec, err := read(filepath.Join(bundle, "config.json"))
	if err != nil {
		return err
	}
	process, _ := spec["process"].(map[string]any)
	root, _ := spec["root"].(map[string]any)
	if process == nil || root == nil {
		return fmt.Errorf("%s has no process or no root", bundle)
	}
	process["args"], process["env"] = kept.Args, kept.Env
	if path, _ := root["path"].(string); !filepath.IsAbs(path) {
		root["path"] = filepath.Join(bundle, path)
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	args[at], err = kept.bundle(text)
	return err
}

// forExec changes the arguments of runc's exec so that the additional process gets the variables
// that were withheld from its container.
func forExec(standIn string, args []string) error {
	at, err := flag(args, "--process", "-p")
	if err != nil {
		return nil // the process is on the command line, so this is not containerd's shim: change nothing
	}
	kept, err := of(standIn, args)
	if err != nil {
		return err
	}
	defer kept.dir.Close()
	process, err := read(args[at])
	if err != nil {
		return err
	}
	process["env"] = complete(process["env"], kept.Env)
	text, err := json.Marshal(process)
	if err != nil {
		return err
	}
	fd, err := unix.MemfdCreate("process", 0) // without CLOEXEC: runc inherits it
	if err != nil {
		return err
	}
	args[at] = fmt.Sprintf("/proc/self/fd/%d", fd)
	return os.WriteFile(args[at], text, 0o600) // trusted: the file that was made above
}

// complete returns the variables of there, and those of more whose names are not among them.
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

// read decodes a JSON object from a file. Numbers keep their spelling.
func read(path string) (map[string]any, error) {
	f, err := os.Open(path) // trusted: containerd's and runc's
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
