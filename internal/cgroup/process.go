package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Enter creates the cgroup at path. On version 1 it moves the calling thread, and so the children
// that it will fork, into the cgroup. That thread must not be the process's main thread, and it
// must end before the cgroup can be removed. On version 2 a single thread cannot be moved: Enter
// returns the open directory of the cgroup, for a child to be created in, and the caller closes it.
func (t *Tree) Enter(path string) (*os.File, error) {
	for _, dir := range t.dirs(path) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("creating cgroup %s: %w", path, err)
		}
		if t.unified != "" {
			return os.Open(dir)
		}
		if err := os.WriteFile(filepath.Join(dir, "tasks"), []byte(strconv.Itoa(syscall.Gettid())), 0); err != nil {
			return nil, fmt.Errorf("entering cgroup %s: %w", path, err)
		}
	}
	return nil, nil
}

// dirs returns the directories of a cgroup for podrun's own processes. The controller cpuset is not
// among them, because its new cgroups accept no processes.
func (t *Tree) dirs(path string) []string {
	if t.unified != "" {
		return []string{filepath.Join(t.unified, path)}
	}
	var out []string
	for _, controller := range []string{"name=systemd", "cpu", "memory", "pids"} {
		if mount, ok := t.mounts[controller]; ok {
			out = append(out, filepath.Join(mount, path))
		}
	}
	return slices.Compact(out)
}

// errRoot says that processes cannot leave the root of a container's cgroups, so that no pod can start. errStay says
// the same of some processes: it may pass.
var (
	errRoot = errors.New("processes are in the root cgroup of this container")
	errStay = fmt.Errorf("%w and cannot be moved", errRoot)
)

// LeaveRoot moves all processes that are in the root of a container's cgroups to the cgroup init in it, and gives its
// controllers to the cgroups in it. In version 2 the kernel does not do the latter while processes are in the root, but
// that is where a container engine starts podrun. LeaveRoot does nothing on version 1, on the machine's own root, which
// may have processes, and if this process is not in the root or directly below it. It also does nothing if a cgroup in
// the root is threaded, as the low-level runtime makes those of best-effort pods below a root that has processes: then
// only such pods can run. Several processes may call it at once.
func (t *Tree) LeaveRoot() error { return t.leaveRoot(time.Now().Add(emptyTime)) }

// leaveRoot is LeaveRoot, which tries again until end.
func (t *Tree) leaveRoot(end time.Time) error {
	if t.unified == "" {
		return nil
	}
	if _, err := os.Stat(filepath.Join(t.unified, "cgroup.type")); errors.Is(err, fs.ErrNotExist) {
		return nil // the machine's own
	}
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return fmt.Errorf("%w: %w", errRoot, err)
	}
	own := unifiedPath(string(text))
	if strings.Count(own, "/") != 1 || own == "/.." { // ..: this process is outside of the container's cgroups
		return nil
	}
	for ; ; time.Sleep(time.Millisecond) {
		err := t.emptyRoot()
		if err == nil {
			err = shareControllers(t.unified)
		}
		if errors.Is(err, syscall.EOPNOTSUPP) { // it is a thread root, in which no other cgroup can have processes
			if threaded(t.unified) {
				return nil
			}
			withdrawControllers(t.unified)
		}
		// Processes are born meanwhile, or enter from outside.
		if err == nil || !errors.Is(err, errStay) || time.Now().After(end) {
			return err
		}
	}
}

// unifiedPath returns the cgroup of version 2 in the text of a file /proc/PID/cgroup, which has a line for each
// hierarchy that is mounted; "" if there is none.
func unifiedPath(text string) string {
	for line := range strings.Lines(text) {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			return strings.TrimSuffix(path, "\n")
		}
	}
	return ""
}

// emptyRoot moves the processes that are in the root now. Its error is errStay if some cannot be moved: an engine's
// "exec" may start its process in the root, where it is outside of the container's PID namespace until it joins that.
func (t *Tree) emptyRoot() error {
	text, err := os.ReadFile(filepath.Join(t.unified, "cgroup.procs"))
	if err != nil {
		return fmt.Errorf("%w: %w", errRoot, err)
	}
	pids := strings.Fields(string(text))
	if len(pids) == 0 {
		return nil
	}
	dir := filepath.Join(t.unified, "init")
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w and need another: %w", errRoot, err)
	}
	var stay error
	for _, pid := range pids {
		if pid == "0" { // would be this process
			stay = fmt.Errorf("%w: one is outside of the container's PID namespace", errStay)
			continue
		}
		err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(pid), 0)
		if err != nil && !errors.Is(err, syscall.ESRCH) { // it has ended
			stay = fmt.Errorf("%w: process %s: %w", errStay, pid, err)
		}
	}
	return stay
}

// shareControllers gives the controllers of the root to the cgroups in it, as the low-level runtime does. From then on
// no process can enter the root. Its error is errStay if one is there. A controller that cannot be given is missing
// later where it is needed.
func shareControllers(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("%w: %w", errRoot, err)
	}
	for _, name := range strings.Fields(string(text)) {
		err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+name), 0)
		if errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.EOPNOTSUPP) {
			return fmt.Errorf("%w: others follow: controller %s: %w", errStay, name, err)
		}
	}
	return nil
}

// withdrawControllers takes the controllers of the root from the cgroups in it. Those that threads can have, like cpu,
// can be given while processes are in the root, by an earlier podrun or by a low-level runtime: that makes it a thread
// root.
func withdrawControllers(dir string) {
	file := filepath.Join(dir, "cgroup.subtree_control")
	text, _ := os.ReadFile(file) // trusted: the kernel's
	for _, name := range strings.Fields(string(text)) {
		_ = os.WriteFile(file, []byte("-"+name), 0) // if it cannot be, the root stays as it is
	}
}

// threaded reports whether a cgroup in the root is threaded. It stays so until it is removed.
func threaded(dir string) bool {
	types, _ := filepath.Glob(filepath.Join(dir, "*", "cgroup.type"))
	return slices.ContainsFunc(types, func(file string) bool {
		text, _ := os.ReadFile(file)
		return string(text) == "threaded\n"
	})
}

// emptyTime is how long killed processes have to end, and a root cgroup's to be moved.
const emptyTime = 5 * time.Second

// Remove kills all processes in the cgroup at path, waits until they have ended and removes the
// cgroup. It is no error if the cgroup does not exist.
func (t *Tree) Remove(path string) error {
	killed := map[int]bool{}
	for _, dir := range t.dirs(path) {
		for end := time.Now().Add(emptyTime); ; time.Sleep(time.Millisecond) {
			err := t.killAll(dir, killed)
			if err == nil {
				err = syscall.Rmdir(dir)
			}
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				break
			}
			if !errors.Is(err, syscall.EBUSY) || time.Now().After(end) {
				return fmt.Errorf("removing cgroup %s: %w", path, err)
			}
		}
	}
	for pid := range killed {
		// If this process is the parent, it reaps the process. Otherwise wait4 fails, and the
		// process's own parent reaps it.
		for end := time.Now().Add(emptyTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if reaped, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); reaped == pid || err != nil {
				break
			}
		}
	}
	return nil
}

// killAll kills the processes in a cgroup and adds their IDs to killed. It does not kill podrun's
// own threads that Enter moved there.
func (t *Tree) killAll(dir string, killed map[int]bool) error {
	file := "cgroup.procs"
	if t.unified == "" {
		file = "tasks" // cgroup.procs would also list podrun, for a thread that is in the cgroup
	}
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return err
	}
	for _, line := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(line)
		if err != nil || pid <= 1 {
			return fmt.Errorf("%s: %q is not a process ID", dir, line)
		}
		if pid == os.Getpid() || !leads(pid) {
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
		killed[pid] = true
	}
	return nil
}

// leads reports whether pid is the ID of a process, and not of one of its other threads.
func leads(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	return err == nil && strings.Contains(string(text), "\nTgid:\t"+strconv.Itoa(pid)+"\n")
}
