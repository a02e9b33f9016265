// Package shim starts containerd's shims without containerd, which runs a shim's program twice for each: once
// to start it and once as it. It does so only where what comes of it is the same: a shim that containerd has
// started is the model, and this process has to live under the same conditions as that one.
//
// It also finds shims among the machine's processes, and kills them. Which of them serve nobody it cannot know.
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

// Model is how containerd starts shims, as seen in one.
type Model struct {
	program string
	// args and env hold the ID that the model was started for.
	args, env []string
	id        string
	// server is containerd's address and namespace, as the names of sockets are made of them.
	server string
	// sockets is the directory of the shims' sockets.
	sockets string
	// oom is the shims' oom_score_adj.
	oom string
}

// errUnlike: a shim that this process started would not be like those of containerd's.
var errUnlike = errors.New("shims of ours would differ")

// ModelOf looks at a running shim that serves the given group, which containerd knows by its address and
// namespace, at the socket at path.
func ModelOf(pid int, address, namespace, group, path string) (*Model, error) {
	m := &Model{server: filepath.Join(address, namespace), sockets: filepath.Dir(path)}
	if m.Socket(group) != path {
		return nil, fmt.Errorf("%w: sockets are named in another way", errUnlike)
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

// Socket is where the shim of a group is reached.
func (m *Model) Socket(group string) string {
	return filepath.Join(m.sockets, socketName(m.server, group))
}

// SocketName is the name of the socket at which a group's shim is reached by the containerd with that address and
// namespace.
func SocketName(address, namespace, group string) string {
	return socketName(filepath.Join(address, namespace), group)
}

func socketName(server, group string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(filepath.Join(server, group))))
}

// renamed is a list with the model's ID replaced, wherever an entry ends with it.
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

// inherited are the lines of /proc/PID/status with what a process hands on to those that it starts.
var inherited = []string{"Umask", "Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Cpus_allowed", "Mems_allowed"}

// alike returns an error unless a process that this one starts would live as the given one does: in the same
// namespaces and cgroups, with the same rights and limits.
func alike(pid int) error {
	self := os.Getpid()
	for _, name := range []string{"root", "ns/cgroup", "ns/ipc", "ns/mnt", "ns/net", "ns/pid", "ns/user", "ns/uts"} {
		theirs, err := os.Stat(proc(pid, name))
		if err != nil {
			return err
		}
		ours, err := os.Stat(proc(self, name))
		if err != nil {
			return err
		}
		if !os.SameFile(theirs, ours) {
			return fmt.Errorf("%w: %s is another", errUnlike, name)
		}
	}
	for name, read := range map[string]func(pid int) (string, error){"cgroup": whole("cgroup"), "limits": hardLimits, "status": rights, "label": whole("attr/current")} {
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

// hardLimits are the limits without the soft ones, which Go programs raise for themselves alone.
func hardLimits(pid int) (string, error) {
	text, err := os.ReadFile(proc(pid, "limits"))
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		// Name and soft limit have as many columns as there are words; the hard one is the last but the unit.
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

// list is what the kernel ends with a zero byte each.
func list(pid int, name string) ([]string, error) {
	text, err := os.ReadFile(proc(pid, name))
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00"), nil
}

func proc(pid int, name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }
