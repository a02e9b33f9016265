package cgroup

import (
	"crypto/rand"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// value reads a file of a cgroup, by its place in version 1 or 2.
func value(t *testing.T, tree *Tree, path, controller, v1, v2 string) string {
	t.Helper()
	file := filepath.Join(tree.unified, path, v2)
	if tree.unified == "" {
		file = filepath.Join(tree.mounts[controller], path, v1)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func TestSetAndSum(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	tree, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	top := "/podrun-test-" + strings.ToLower(rand.Text())
	a, b, other := top+"/poda", top+"/podb", top+"/other"
	t.Cleanup(func() {
		for _, path := range []string{a, b, other, top} {
			for _, mount := range append([]string{tree.unified}, mounts(tree)...) {
				if mount != "" {
					_ = syscall.Rmdir(filepath.Join(mount, path))
				}
			}
		}
	})
	shares := func(n uint64) *specs.LinuxResources { return &specs.LinuxResources{CPU: &specs.LinuxCPU{Shares: &n}} }
	limited := shares(1024)
	limited.CPU.Quota, limited.CPU.Period = new(int64(50_000)), new(uint64(100_000))
	limited.Memory = &specs.LinuxMemory{Limit: new(int64(64 << 20))}
	limited.Pids = &specs.LinuxPids{Limit: new(int64(100))}
	for range 2 { // what is there may be set again
		for path, r := range map[string]*specs.LinuxResources{a: limited, b: shares(2048), other: shares(4096)} {
			if err := tree.Set(path, r); err != nil {
				if strings.Contains(err.Error(), "read-only") {
					t.Skip("cgroups are read-only here")
				}
				t.Fatal(err)
			}
		}
	}
	if got := value(t, tree, a, "memory", "memory.limit_in_bytes", "memory.max"); got != "67108864" {
		t.Errorf("memory %s", got)
	}
	if got := value(t, tree, a, "pids", "pids.max", "pids.max"); got != "100" {
		t.Errorf("pids %s", got)
	}
	if got := value(t, tree, a, "cpu", "cpu.cfs_quota_us", "cpu.max"); !strings.HasPrefix(got, "50000") {
		t.Errorf("quota %s", got)
	}
	free := shares(1024)
	free.CPU.Quota, free.CPU.Period = new(int64(-1)), new(uint64(100_000))
	free.Memory = &specs.LinuxMemory{Limit: new(int64(math.MaxInt64))}
	free.Pids = &specs.LinuxPids{Limit: new(int64(-1))}
	if err := errors.Join(tree.Set(a, free), tree.Set(b, free)); err != nil {
		t.Error(err)
	}
	if got := value(t, tree, a, "pids", "pids.max", "pids.max"); got != "max" {
		t.Errorf("pids without a limit %s", got)
	}
	if got := value(t, tree, a, "cpu", "cpu.cfs_quota_us", "cpu.max"); got != "-1" && !strings.HasPrefix(got, "max ") {
		t.Errorf("no quota %s", got)
	}
	if got := value(t, tree, a, "memory", "memory.limit_in_bytes", "memory.max"); len(got) < 15 && got != "max" {
		t.Errorf("memory without a limit %s", got)
	}
	if !tree.Exists(a) || tree.Exists(top+"/nowhere") {
		t.Error("which cgroups exist is wrong")
	}
	if err := tree.Set(b, shares(2048)); err != nil {
		t.Error(err)
	}
	if err := tree.SumWeights(top, "pod"); err != nil {
		t.Fatal(err)
	}
	if got := value(t, tree, top, "cpu", "cpu.shares", "cpu.weight"); tree.unified == "" && got != "3074" {
		t.Errorf("sum of weights %s", got)
	}
	if err := tree.SumWeights(top+"/nowhere", "pod"); err != nil {
		t.Errorf("a cgroup that is not there: %v", err)
	}
}

// TestNoLimits: that there is no limit is said only to a cgroup that may have one: neither a new one nor a machine without
// the controller needs it.
func TestNoLimits(t *testing.T) {
	t.Parallel()
	free := func() *specs.LinuxResources {
		return &specs.LinuxResources{
			CPU:    &specs.LinuxCPU{Shares: new(uint64(2)), Quota: new(int64(-1)), Period: new(uint64(100_000))},
			Memory: &specs.LinuxMemory{Limit: new(int64(math.MaxInt64))}, Pids: &specs.LinuxPids{Limit: new(int64(-1))},
		}
	}
	dir := t.TempDir()
	for _, controller := range []string{"cpu", "memory", "pids"} {
		for _, file := range []string{"cpu.cfs_quota_us", "memory.limit_in_bytes", "pids.max", "cpu.max", "memory.max"} {
			if strings.HasPrefix(file, controller+".") {
				put(t, filepath.Join(dir, controller, "old", file), "1")
				put(t, filepath.Join(dir, "old", file), "1")
			}
		}
	}
	mounted := map[string]string{"cpu": filepath.Join(dir, "cpu"), "memory": filepath.Join(dir, "memory"), "pids": filepath.Join(dir, "pids")}
	for name, tree := range map[string]*Tree{"version 1": {mounts: mounted}, "version 2": {unified: dir}, "no controllers": {}} {
		old, fresh := withoutNone(tree, "/old", free()), withoutNone(tree, "/new", free())
		if all := old.CPU.Quota != nil && old.Memory != nil && old.Pids != nil; all != (name != "no controllers") {
			t.Errorf("%s: a cgroup that exists: %+v", name, old)
		}
		if fresh.CPU.Quota != nil || fresh.CPU.Period != nil || fresh.Memory != nil || fresh.Pids != nil || *fresh.CPU.Shares != 2 {
			t.Errorf("%s: a new cgroup: %+v", name, fresh)
		}
	}
	limited := free()
	limited.CPU.Quota, limited.Memory.Limit, limited.Pids.Limit = new(int64(1)), new(int64(1)), new(int64(1))
	if got := withoutNone(&Tree{unified: dir}, "/new", limited); got.CPU.Quota == nil || got.Memory == nil || got.Pids == nil {
		t.Errorf("limits: %+v", got)
	}
}

func mounts(t *Tree) []string {
	var out []string
	for _, mount := range t.mounts {
		out = append(out, mount)
	}
	return out
}

func TestEnterAndRemove(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	tree, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	path := "/podrun-test-" + strings.ToLower(rand.Text())
	pid, failed := 0, make(chan error, 1)
	var fork func()
	fork = func() {
		runtime.LockOSThread() // for good: the thread ends in that cgroup
		if syscall.Gettid() == syscall.Getpid() {
			defer runtime.UnlockOSThread() // the first thread cannot end
			other := make(chan struct{})
			go func() { fork(); close(other) }()
			<-other
			return
		}
		attributes := &syscall.SysProcAttr{}
		born, err := tree.Enter(path)
		if born != nil {
			defer born.Close()
			attributes.UseCgroupFD, attributes.CgroupFD = true, int(born.Fd())
		}
		if err == nil {
			pid, err = syscall.ForkExec("/bin/sleep", []string{"sleep", "1000"}, &syscall.ProcAttr{Sys: attributes})
		}
		failed <- err
	}
	go fork()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	for range 2 { // what is gone is success
		if err := tree.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Kill(pid, 0); err == nil {
		t.Error("the process lives")
	}
	for _, dir := range tree.dirs(path) {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is still there", dir)
		}
	}
}
