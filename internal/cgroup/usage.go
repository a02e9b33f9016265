package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Usage is what a cgroup, with all below it, has taken.
type Usage struct {
	// CPU is the time on processors since the cgroup was made.
	CPU time.Duration
	// Memory is all memory in bytes, with the files' that are cached; WorkingSet is Memory without what of
	// these was not used lately, which the kubelet calls so too.
	Memory, WorkingSet int64
}

// ErrNoUsage says that the machine's cgroups do not count.
var ErrNoUsage = errors.New("neither processor time nor memory is counted in cgroups here")

// Usage reads what the cgroup at path has taken. The error is fs.ErrNotExist for one that is not there.
func (t *Tree) Usage(path string) (Usage, error) {
	var u Usage
	var err error
	if t.unified != "" {
		u, err = unifiedUsage(filepath.Join(t.unified, path))
	} else {
		u, err = t.usageV1(path)
	}
	if err != nil {
		return u, fmt.Errorf("reading cgroup %s: %w", path, err)
	}
	return u, nil
}

func unifiedUsage(dir string) (u Usage, err error) {
	cpu, err := keyed(filepath.Join(dir, "cpu.stat"))
	if err != nil {
		return u, err
	}
	u.CPU = time.Duration(cpu["usage_usec"]) * time.Microsecond
	if u.Memory, err = number(filepath.Join(dir, "memory.current")); err != nil {
		return u, err
	}
	stat, err := keyed(filepath.Join(dir, "memory.stat"))
	u.WorkingSet = max(u.Memory-stat["inactive_file"], 0)
	return u, err
}

func (t *Tree) usageV1(path string) (u Usage, err error) {
	cpu, memory := t.mounts["cpuacct"], t.mounts["memory"]
	if cpu == "" || memory == "" {
		return u, ErrNoUsage
	}
	spent, err := number(filepath.Join(cpu, path, "cpuacct.usage"))
	if err != nil {
		return u, err
	}
	u.CPU = time.Duration(spent)
	if u.Memory, err = number(filepath.Join(memory, path, "memory.usage_in_bytes")); err != nil {
		return u, err
	}
	stat, err := keyed(filepath.Join(memory, path, "memory.stat"))
	u.WorkingSet = max(u.Memory-stat["total_inactive_file"], 0)
	return u, err
}

// number reads a file of one number.
func number(path string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

// keyed reads a file with a name and a number in each line.
func keyed(path string) (map[string]int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := map[string]int64{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			out[name] = n
		}
	}
	return out, nil
}
