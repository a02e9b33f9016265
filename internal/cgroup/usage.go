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

// Usage is what a cgroup, with all below it, has taken.
type Usage struct {
	// CPU is the time on processors since the cgroup was made.
	CPU time.Duration
	// Memory is all memory in bytes, with the files' that are cached; WorkingSet is Memory without what of
	// these was not used lately, which the kubelet calls so too.
	Memory, WorkingSet int64
	// RSS is anonymous memory in bytes.
	RSS int64
	// PageFaults and MajorPageFaults, those that had to read, are counted since the cgroup was made.
	PageFaults, MajorPageFaults int64
	// Swap is what of its memory has been swapped out, SwapLimit how much may be, in bytes; -1: not known, and
	// no limit.
	Swap, SwapLimit int64
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

// First reads the first of the cgroups at paths that is there. The error is fs.ErrNotExist if none is.
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
	u.Swap, u.SwapLimit = optional(filepath.Join(dir, "memory.swap.current")), optional(filepath.Join(dir, "memory.swap.max"))
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
	u.Swap, u.SwapLimit = -1, -1
	if swap, ok := stat["total_swap"]; ok {
		u.Swap = swap
		// This version limits memory and swap together.
		both, own := stat["hierarchical_memsw_limit"], stat["hierarchical_memory_limit"]
		if both > 0 && both < noLimit {
			u.SwapLimit = max(both-own, 0)
		}
	}
	return u, err
}

// noLimit is less than what version 1 says where there is no limit, which depends on the size of a page.
const noLimit = 1 << 62

// optional reads a file of one number; -1: it is not there, or has none.
func optional(path string) int64 {
	n, err := number(path)
	if err != nil {
		return -1
	}
	return n
}

// Processes are those in the cgroup at path and below it. The error is fs.ErrNotExist for one that is not there.
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
	pids, err := processes(filepath.Join(mount, path))
	if err != nil {
		return nil, fmt.Errorf("reading the processes of cgroup %s: %w", path, err)
	}
	return pids, nil
}

func processes(dir string) ([]int, error) {
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
		below, err := processes(filepath.Join(dir, e.Name()))
		if err == nil { // else it has just gone
			out = append(out, below...)
		}
	}
	return out, nil
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
