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

// Enter makes the cgroup at path and puts the calling thread, and so what it will fork, into it; the thread
// must not be the process's first one, and must end before the cgroup can be removed. On version 2
// a thread cannot go alone; there Enter returns the cgroup's directory, for a child to be born in.
func (t *Tree) Enter(path string) (*os.File, error) {
	for _, dir := range t.dirs(path) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("making cgroup %s: %w", path, err)
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

// dirs are the places of a cgroup for processes of podrun's own. The controller cpuset is not among them: a
// new cgroup of it takes no process.
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

// emptyTime is how long killed processes are given to be gone.
const emptyTime = 5 * time.Second

// Remove kills all that is in the cgroup at path and removes it. One that is not there is success.
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
		// If this process is its parent, it hears of the end; any other sees to it by itself.
		for end := time.Now().Add(emptyTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if reaped, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); reaped == pid || err != nil {
				break
			}
		}
	}
	return nil
}

// killAll kills the processes in a cgroup. A thread that went there to fork is none: its process is podrun.
func (t *Tree) killAll(dir string, killed map[int]bool) error {
	file := "cgroup.procs"
	if t.unified == "" {
		file = "tasks" // the other one would name the processes of threads, too
	}
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return err
	}
	for _, line := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(line)
		if err != nil || pid <= 1 {
			return fmt.Errorf("%s: %q is no process", dir, line)
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

// leads reports that pid is a process's own number, not that of another of its threads.
func leads(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	return err == nil && strings.Contains(string(text), "\nTgid:\t"+strconv.Itoa(pid)+"\n")
}
