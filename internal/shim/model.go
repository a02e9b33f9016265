// Package shim starts containerd's runtime shims without containerd, and finds and kills shims
// among the machine's processes.
//
// containerd runs a shim's program twice for each shim: once to start it and once as the shim.
// Launching it directly saves the first run. The package does so only if the result is the same: a
// shim that containerd has started is the template (ModelOf), and this process must run under the
// same conditions as that one.
//
// The package does not talk to shims, and it does not know which of them are still needed: packages
// shimpool and orphan below runtime/containerd decide which shim is started or killed. Start
// reading at Nursery.Start.
package shim

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Model describes how containerd starts shims, as observed in a running one.
type Model struct {
	program string
	// args and env contain the ID that the model was started for.
	args, env []string
	id        string
	// server is containerd's address and namespace, joined as a path. The names of sockets are
	// derived from it.
	server string
	// sockets is the directory of the shims' sockets.
	sockets string
	// oom is the shims' oom_score_adj.
	oom string
}

// errUnlike means that a shim started by this process would differ from containerd's.
var errUnlike = errors.New("shims started by podrun would differ from containerd's")

// ModelOf returns the model of a running shim of the given group, which listens on the socket at
// path. address and namespace are those of its containerd. It returns an error if a shim that this
// process starts would differ.
func ModelOf(pid int, address, namespace, group, path string) (*Model, error) {
	m := &Model{server: filepath.Join(address, namespace), sockets: filepath.Dir(path)}
	if m.Socket(group) != path {
		return nil, fmt.Errorf("%w: sockets have other names", errUnlike)
	}
	if err := alike(pid); err != nil {
		return nil, err
	}
	var err error
	if m.program, err = os.Readlink(proc(pid, "exe")); err != nil {
		return nil, err
	}
	if m.args, err = list(pid, "cmdline"); err != nil {
		return nil, err
	}
	if m.env, err = list(pid, "environ"); err != nil {
		return nil, err
	}
	score, err := os.ReadFile(proc(pid, "oom_score_adj"))
	if err != nil {
		return nil, err
	}
	m.oom = string(bytes.TrimSpace(score))
	i := slices.Index(m.args, "-id")
	if i < 0 || i+1 >= len(m.args) || slices.Contains(m.args, "-debug") || strings.HasSuffix(m.program, " (deleted)") {
		return nil, fmt.Errorf("%w: %q", errUnlike, m.args)
	}
	m.id = m.args[i+1]
	return m, nil
}

// Socket returns the path of the socket of a group's shim.
func (m *Model) Socket(group string) string {
	return filepath.Join(m.sockets, socketName(m.server, group))
}

// socketName returns the file name of the socket of a group's shim.
func socketName(server, group string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(filepath.Join(server, group))))
}

// renamed returns a copy of all in which the model's ID is replaced by id where an entry ends with
// it.
func (m *Model) renamed(all []string, id string) []string {
	out := make([]string, len(all))
	for i, s := range all {
		if rest, found := strings.CutSuffix(s, m.id); found {
			s = rest + id
		}
		out[i] = s
	}
	return out
}

// inherited are the lines of /proc/PID/status with the attributes that child processes inherit.
var inherited = []string{
	"Umask", "Uid", "Gid", "Groups",
	"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb",
	"NoNewPrivs", "Seccomp", "Cpus_allowed", "Mems_allowed",
}

// alike returns an error unless children of this process run under the same conditions as the given
// process: in the same namespaces and cgroups, with the same credentials and limits.
func alike(pid int) error {
	self := os.Getpid()
	// The root is the last, for it is a directory: in another namespace its server may not answer.
	for _, name := range []string{"ns/cgroup", "ns/ipc", "ns/mnt", "ns/net", "ns/pid", "ns/user", "ns/uts", "root"} {
		theirs, err := os.Stat(proc(pid, name))
		if err != nil {
			return err
		}
		ours, err := os.Stat(proc(self, name))
		if err != nil {
			return err
		}
		if !os.SameFile(theirs, ours) {
			return fmt.Errorf("%w: %s is not the same", errUnlike, name)
		}
	}
	for name, read := range map[string]func(pid int) (string, error){
		"cgroup": whole("cgroup"),
		"limits": hardLimits,
		"status": rights,
		"label":  whole("attr/current"),
	} {
		theirs, err := read(pid)
		ours, failed := read(self)
		if theirs != ours || (err == nil) != (failed == nil) {
			return fmt.Errorf("%w: %s: %q, not %q", errUnlike, name, ours, theirs)
		}
	}
	return nil
}

func whole(name string) func(int) (string, error) {
	return func(pid int) (string, error) {
		text, err := os.ReadFile(proc(pid, name))
		return string(text), err
	}
}

// hardLimits returns the resource limits without the soft ones, which Go programs raise for
// themselves only.
func hardLimits(pid int) (string, error) {
	text, err := os.ReadFile(proc(pid, "limits"))
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		// The name has a variable number of words. The hard limit is the last field, or the last
		// but one if a unit follows.
		fields := strings.Fields(line)
		if n := len(fields); n > 3 && strings.HasPrefix(line, "Max ") {
			if _, err := strconv.Atoi(fields[n-1]); err != nil && fields[n-1] != "unlimited" {
				n--
			}
			out.WriteString(fields[1] + fields[2] + "=" + fields[n-1] + "\n")
		}
	}
	return out.String(), err
}

func rights(pid int) (string, error) {
	text, err := os.ReadFile(proc(pid, "status"))
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		if name, _, _ := strings.Cut(line, ":"); slices.Contains(inherited, name) {
			out.WriteString(line)
		}
	}
	return out.String(), err
}

// list returns the entries of a file in /proc/PID that end with a zero byte each.
func list(pid int, name string) ([]string, error) {
	text, err := os.ReadFile(proc(pid, name))
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00"), nil
}

func proc(pid int, name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }
