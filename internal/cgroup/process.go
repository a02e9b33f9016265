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

// emptyTime is how long killed processes have to end.
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
