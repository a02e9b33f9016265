// Package cgroup makes and changes the cgroups that pods have above their containers', on version 1 and 2.
// It does not know pods, and makes no container's cgroup: the low-level runtime does. Where slices are asked for,
// systemd makes them.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/moby/sys/mountinfo"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// Tree is this machine's cgroups. Its methods may be used at the same time.
type Tree struct {
	// mounts says where each controller of version 1 is mounted; with unified set, version 2's mount.
	mounts  map[string]string
	unified string
	// weighing keeps sums from being written in another order than they were made.
	weighing sync.Mutex
}

// root is where every distribution mounts version 2, and below it version 1.
const root = "/sys/fs/cgroup"

// Open looks at how this machine's cgroups are mounted.
func Open() (*Tree, error) {
	if Unified() {
		return &Tree{unified: root}, nil
	}
	found, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup"))
	if err != nil {
		return nil, fmt.Errorf("looking for the cgroup hierarchies: %w", err)
	}
	t := &Tree{mounts: map[string]string{}}
	for _, m := range found {
		for _, controller := range strings.Split(m.VFSOptions, ",") {
			t.mounts[controller] = m.Mountpoint
			if !strings.HasPrefix(controller, "name=") {
				// Where several controllers share a mount there is a link of each one's name beside it.
				t.mounts[controller] = filepath.Join(filepath.Dir(m.Mountpoint), controller)
			}
		}
	}
	return t, nil
}

// Unified reports that all controllers are in the hierarchy of version 2.
func Unified() bool {
	const cgroup2 = 0x63677270
	var st syscall.Statfs_t
	return syscall.Statfs(root, &st) == nil && st.Type == cgroup2
}

// Set makes the cgroup at path, as seen from the root of the hierarchies, if it is not there, and sets what
// resources, in terms of version 1, say; what they do not say is left alone.
func (t *Tree) Set(path string, resources *specs.LinuxResources) error {
	if err := setSlice(path, t.unified != "", resources); err != nil {
		return err
	}
	var err error
	if t.unified != "" {
		converted := cgroup2.ToResources(resources)
		if cpu := resources.CPU; cpu != nil && cpu.Quota != nil && *cpu.Quota < 0 {
			converted.CPU.Max = cgroup2.NewCPUMax(nil, cpu.Period) // version 1 says none by -1
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

// setV1 touches no other controllers than it must.
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
			return fmt.Errorf("looking for the sizes of huge pages: %w", err)
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
	return err
}

// weightFile is the file of a cgroup's weight for CPU time, the range of its values, and where it is.
func (t *Tree) weightFile() (dir, name string, highest uint64) {
	if t.unified != "" {
		return t.unified, "cpu.weight", 10_000
	}
	return t.mounts["cpu"], "cpu.shares", 262_144
}

// SumWeights gives the cgroup at path the weight for CPU time that those below it whose name begins with
// prefix have together. A cgroup that is not there is left so.
func (t *Tree) SumWeights(path, prefix string) error {
	t.weighing.Lock()
	defer t.weighing.Unlock()
	mount, name, highest := t.weightFile()
	if mount == "" {
		return nil
	}
	dir := filepath.Join(mount, path)
	below, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("weighing cgroup %s: %w", path, err)
	}
	const lowest = 2
	sum := uint64(lowest)
	for _, e := range below {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name(), name))
		if err != nil {
			continue // on its way out
		}
		weight, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			return fmt.Errorf("weighing cgroup %s: %w", path, err)
		}
		sum += weight
	}
	value := strconv.FormatUint(min(sum, highest), 10)
	if err := weighSlice(path, name, min(sum, highest)); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("weighing cgroup %s: %w", path, err)
	}
	return nil
}
