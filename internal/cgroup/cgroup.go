// Package cgroup creates and changes the cgroups that are above containers' cgroups, on cgroup
// version 1 and 2, and reads the usage of cgroups. A cgroup whose name ends with ".slice" is
// created by systemd. The package does not know pods, and does not create containers' cgroups: the
// low-level runtime (runc) does.
//
// Start reading at Tree: Set creates and limits a cgroup.
package cgroup

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/moby/sys/mountinfo"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// Tree is this machine's cgroup hierarchy. Its methods may be called concurrently.
type Tree struct {
	// mounts has the mount point of each controller of version 1. unified is version 2's mount point, or
	// "" with version 1.
	mounts  map[string]string
	unified string
	// weighing serializes SumWeights: otherwise an older sum might overwrite a newer one.
	weighing sync.Mutex
	// systemd connects to systemd for one operation.
	systemd func(ctx context.Context, do func(ctx context.Context, c units) error) error
	// units is where systemd's units of this boot are configured.
	units string
}

// root is the mount point of version 2, and the parent directory of version 1's mount points, in
// all distributions.
const root = "/sys/fs/cgroup"

// Open returns the cgroup hierarchy after reading where it is mounted.
func Open() (*Tree, error) {
	t := &Tree{mounts: map[string]string{}, systemd: withSystemd, units: systemdDir}
	if Unified() {
		t.unified = root
		return t, nil
	}
	found, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup"))
	if err != nil {
		return nil, fmt.Errorf("listing the cgroup mounts: %w", err)
	}
	for _, m := range found {
		for _, controller := range strings.Split(m.VFSOptions, ",") {
			t.mounts[controller] = m.Mountpoint
			if !strings.HasPrefix(controller, "name=") {
				// If several controllers share a mount, there is a symbolic link named after each
				// of them beside it.
				t.mounts[controller] = filepath.Join(filepath.Dir(m.Mountpoint), controller)
			}
		}
	}
	return t, nil
}

// Unified reports whether this machine uses cgroup version 2 for all controllers.
func Unified() bool {
	const cgroup2 = 0x63677270
	var st syscall.Statfs_t
	return syscall.Statfs(root, &st) == nil && st.Type == cgroup2
}

// Set creates the cgroup at path if it does not exist, and applies resources, which are in terms of
// version 1. It does not change what resources do not set. path is relative to the root of the
// hierarchies.
func (t *Tree) Set(path string, resources *specs.LinuxResources) error {
	if err := t.setSlice(path, resources); err != nil {
		return err
	}
	resources = withoutNone(t, path, resources)
	var err error
	if t.unified != "" {
		converted := cgroup2.ToResources(resources)
		if cpu := resources.CPU; cpu != nil && cpu.Quota != nil && *cpu.Quota < 0 {
			converted.CPU.Max = cgroup2.NewCPUMax(nil, cpu.Period) // in version 1, -1 means no quota
		}
		_, err = cgroup2.NewManager(t.unified, path, converted)
	} else {
		err = t.setV1(path, resources)
	}
	if err != nil {
		return fmt.Errorf("setting cgroup %s: %w", path, err)
	}
	return nil
}

// setV1 applies resources on version 1. It uses only the controllers that resources set.
func (t *Tree) setV1(path string, resources *specs.LinuxResources) error {
	wanted := map[string]func(dir string) cgroup1.Subsystem{}
	if resources.CPU != nil {
		wanted["cpu"] = func(dir string) cgroup1.Subsystem { return cgroup1.NewCpu(dir) }
	}
	if resources.Memory != nil {
		wanted["memory"] = func(dir string) cgroup1.Subsystem { return cgroup1.NewMemory(dir) }
	}
	if resources.Pids != nil {
		wanted["pids"] = func(dir string) cgroup1.Subsystem { return cgroup1.NewPids(dir) }
	}
	if resources.HugepageLimits != nil {
		pages, err := cgroup1.NewHugetlb(filepath.Dir(t.mounts[controllerHugePages]))
		if err != nil {
			return fmt.Errorf("reading the sizes of huge pages: %w", err)
		}
		wanted[controllerHugePages] = func(string) cgroup1.Subsystem { return pages }
	}
	var use []cgroup1.Subsystem
	for controller, of := range wanted {
		dir, ok := t.mounts[controller]
		if !ok {
			return fmt.Errorf("the controller %s is not mounted", controller)
		}
		use = append(use, of(filepath.Dir(dir)))
	}
	_, err := cgroup1.New(cgroup1.StaticPath(path), resources, cgroup1.WithHierarchy(
		func() ([]cgroup1.Subsystem, error) { return use, nil }))
	// It does not write that there is no limit.
	if pids := resources.Pids; err == nil && pids != nil && pids.Limit != nil && isNone(*pids.Limit) {
		err = os.WriteFile(fileOf(t, path, "pids", "pids.max", ""), []byte("max"), 0)
	}
	return err
}

// withoutNone returns resources without the limits that mean none, as far as the cgroup at path has no file for them: a
// new cgroup has no limits, and the machine may not have the controller.
func withoutNone(t *Tree, path string, resources *specs.LinuxResources) *specs.LinuxResources {
	out := *resources
	if cpu := out.CPU; cpu != nil && cpu.Quota != nil && isNone(*cpu.Quota) &&
		!exists(fileOf(t, path, "cpu", "cpu.cfs_quota_us", "cpu.max")) {
		weight := *cpu
		weight.Quota, weight.Period = nil, nil
		out.CPU = &weight
	}
	if memory := out.Memory; memory != nil && memory.Limit != nil && isNone(*memory.Limit) &&
		!exists(fileOf(t, path, "memory", "memory.limit_in_bytes", "memory.max")) {
		out.Memory = nil
	}
	if pids := out.Pids; pids != nil && pids.Limit != nil && isNone(*pids.Limit) &&
		!exists(fileOf(t, path, "pids", "pids.max", "pids.max")) {
		out.Pids = nil
	}
	return &out
}

// isNone reports whether a limit means none.
func isNone(limit int64) bool { return limit < 0 || limit == math.MaxInt64 }

// fileOf returns the path of a file of the cgroup at path, which has the name v1 or v2 by the version.
func fileOf(t *Tree, path, controller, v1, v2 string) string {
	if t.unified != "" {
		return filepath.Join(t.unified, path, v2)
	}
	return filepath.Join(t.mounts[controller], path, v1)
}

// Exists reports whether there is a cgroup at path.
func (t *Tree) Exists(path string) bool { return slices.ContainsFunc(t.dirs(path), exists) }
