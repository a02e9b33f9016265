package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Usage is the resource usage of a cgroup, including its descendants.
type Usage struct {
	// CPU is the CPU time used since the cgroup was created.
	CPU time.Duration
	// Memory is the used memory in bytes, including cached files. WorkingSet is Memory without
	// inactive cached files, as the kubelet defines it.
	Memory, WorkingSet int64
	// MemoryLimit is in bytes; 0: none.
	MemoryLimit int64
	// RSS is the anonymous memory in bytes.
	RSS int64
	// PageFaults and MajorPageFaults are counted since the cgroup was created. Major faults are
	// those that had to read from disk.
	PageFaults, MajorPageFaults int64
	// Swap is the swapped-out memory and SwapLimit its limit, in bytes. -1 means that Swap is
	// unknown, or that there is no limit.
	Swap, SwapLimit int64
}

// ErrNoUsage means that the machine's cgroups do not account for CPU time or memory.
var ErrNoUsage = errors.New("the cgroups of this machine do not account for CPU time and memory")

// Usage returns the usage of the cgroup at path. The error is fs.ErrNotExist if the cgroup does not
// exist.
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

// First calls read with each path until one exists, and returns that path and its value. The error
// is fs.ErrNotExist if none exists.
func First[T any](read func(path string) (T, error), paths []string) (path string, of T, err error) {
	for _, path = range paths {
		if of, err = read(path); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return path, of, err
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
	u.RSS, u.PageFaults, u.MajorPageFaults = stat["anon"], stat["pgfault"], stat["pgmajfault"]
	u.MemoryLimit = max(optional(filepath.Join(dir, "memory.max")), 0)
	u.Swap, u.SwapLimit = optional(filepath.Join(dir, "memory.swap.current")),
		optional(filepath.Join(dir, "memory.swap.max"))
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
	u.RSS, u.PageFaults, u.MajorPageFaults = stat["total_rss"], stat["total_pgfault"], stat["total_pgmajfault"]
	if limit := optional(filepath.Join(memory, path, "memory.limit_in_bytes")); 0 < limit && limit < noLimit {
		u.MemoryLimit = limit
	}
	u.Swap, u.SwapLimit = -1, -1
	if swap, ok := stat["total_swap"]; ok {
		u.Swap = swap
		// Version 1 limits the sum of memory and swap.
		both, own := stat["hierarchical_memsw_limit"], stat["hierarchical_memory_limit"]
		if both > 0 && both < noLimit {
			u.SwapLimit = max(both-own, 0)
		}
	}
	return u, err
}

// noLimit is less than the value of version 1 for no limit, which depends on the page size.
const noLimit = 1 << 62

// optional reads a file with one number; -1 if it does not exist or has none, such as "max".
func optional(path string) int64 {
	n, err := number(path)
	if err != nil {
		return -1
	}
	return n
}

// Processes returns the IDs of the processes in the cgroup at path and its descendants. The error
// is fs.ErrNotExist if the cgroup does not exist.
func (t *Tree) Processes(path string) ([]int, error) {
	mount := t.unified
	for _, controller := range []string{"cpuacct", "memory", "pids"} {
		if mount == "" {
			mount = t.mounts[controller]
		}
	}
	if mount == "" {
		return nil, ErrNoUsage
	}
	pids, err := ProcessesBelow(filepath.Join(mount, path))
	if err != nil {
		return nil, fmt.Errorf("reading the processes of cgroup %s: %w", path, err)
	}
	return pids, nil
}

// ProcessesBelow returns the IDs of the processes in the cgroup whose directory is dir, and in its descendants: a
// container may have made cgroups in its own, as systemd, a container engine or podrun does, and moved all its
// processes there. The ID is 0 for a process that is not in this process's PID namespace.
func ProcessesBelow(dir string) ([]int, error) {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var out []int
	for _, line := range strings.Fields(string(text)) {
		if pid, err := strconv.Atoi(line); err == nil {
			out = append(out, pid)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		below, err := ProcessesBelow(filepath.Join(dir, e.Name()))
		if err == nil { // else it was just removed
			out = append(out, below...)
		}
	}
	return out, nil
}

// number reads a file with one number.
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
