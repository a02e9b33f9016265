package secretenv

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/layout"
)

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

// of returns what is withheld from the container of a command, whose ID is the last argument, for the stand-in at
// the path.
func of(standIn string, args []string) (*kept, error) {
	if !filepath.IsAbs(standIn) {
		return nil, fmt.Errorf("the path %s is not absolute", standIn)
	}
	return find(layout.RootOfStandIn(standIn), args[len(args)-1])
}

// forCreate makes runc take a bundle with what was withheld. It is beside the file that has it, in memory.
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

// forExec gives a further process of a container the variables that were withheld from it.
func forExec(standIn string, args []string) error {
	at, err := flag(args, "--process", "-p")
	if err != nil {
		return nil // it is told on the command line, and so by nobody who knows of this
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
	fd, err := unix.MemfdCreate("process", 0) // runc inherits it
	if err != nil {
		return err
	}
	args[at] = fmt.Sprintf("/proc/self/fd/%d", fd)
	return os.WriteFile(args[at], text, 0o600)
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
