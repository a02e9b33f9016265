package containerd

import (
	"context"
	"encoding/json"
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

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/cap"
	"github.com/moby/sys/mountinfo"
	"github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
)

// hierarchies returns the mounts of the cgroup hierarchies: one for v2, several for v1.
func hierarchies() ([]*mountinfo.Info, error) {
	return mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
}

// cgroupOf returns the path of a container's cgroup below each hierarchy; "" if its record does not
// have it.
func cgroupOf(c containers.Container) string { return oci.CgroupDir(cgroupsPathOf(c)) }

// cgroupsPathOf returns the cgroups path in the container's spec.
func cgroupsPathOf(c containers.Container) string {
	if spec := specOf(c); spec.Linux != nil {
		return spec.Linux.CgroupsPath
	}
	return ""
}

// specOf returns the container's spec; an empty one if its record has none.
func specOf(c containers.Container) (spec specs.Spec) {
	if c.Spec == nil || json.Unmarshal(c.Spec.GetValue(), &spec) != nil {
		return specs.Spec{}
	}
	return spec
}

// filesIn returns the contents of those files of a cgroup that exist, from all hierarchies.
func filesIn(path string, names ...string) (texts []string) {
	mounts, err := hierarchies()
	if err != nil || path == "" {
		return nil
	}
	for _, m := range mounts {
		for _, name := range names {
			if text, err := os.ReadFile(filepath.Join(m.Mountpoint, path, name)); err == nil { // trusted: the kernel's
				texts = append(texts, string(text))
			}
		}
	}
	return texts
}

// processesIn returns the IDs of the processes in a cgroup.
func processesIn(path string) (pids []int) {
	for _, text := range filesIn(path, "cgroup.procs") {
		for _, line := range strings.Fields(text) {
			if pid, err := strconv.Atoi(line); err == nil && pid > 1 && !slices.Contains(pids, pid) {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// oomKilled reports whether the kernel killed a process in the container's cgroup because it ran
// out of memory. It is called before the task is deleted, while the cgroup still exists.
func oomKilled(c containers.Container) bool {
	return slices.ContainsFunc(filesIn(cgroupOf(c), "memory.oom_control", "memory.events"), oomKills) // v1 and v2
}

// oomKills reports whether the text of a cgroup file counts any OOM kills.
func oomKills(text string) bool {
	for line := range strings.Lines(text) {
		if count, ok := strings.CutPrefix(line, "oom_kill "); ok {
			return strings.TrimSpace(count) != "0"
		}
	}
	return false
}

// limitPod creates the pod's own cgroup, the parent of its containers' cgroups, if there are
// resources to set on it. Its first call also configures the cgroup of the best-effort class.
func (r *Runtime) limitPod(p *v1.Pod, driver oci.Driver) error {
	if !r.classConfigured.Load() {
		if r.limits.lowestOOMScoreAdj > lowestOOMScoreAdj {
			r.Log.Info(
				"capability CAP_SYS_RESOURCE is missing: no container gets a lower oom_score_adj than podrun's own",
				"lowest", r.limits.lowestOOMScoreAdj)
		}
		if err := r.cgroups.Set(driver.Class(v1.PodQOSBestEffort), oci.ClassResources()); err != nil {
			r.Log.Warn("cgroup of best-effort pods cannot be configured: they get as much CPU time as others",
				"err", err)
		}
		r.classConfigured.Store(true)
	}
	resources := oci.PodResources(p, r.PodMaxPids)
	if resources == nil {
		return nil
	}
	return r.setPod(p, driver, resources)
}

// setPod sets the resources of the pod's own cgroup.
func (r *Runtime) setPod(p *v1.Pod, driver oci.Driver, resources *specs.LinuxResources) error {
	if err := r.cgroups.Set(driver.OfPod(p), resources); err != nil {
		return err
	}
	r.weighBurstable(driver.OfPod(p))
	return nil
}

// weighBurstable sets the CPU weight of the cgroup of all burstable pods to the sum of theirs. It
// is called with the path of a pod's cgroup that was created or removed, and does nothing for pods
// of another class.
func (r *Runtime) weighBurstable(path string) {
	for _, driver := range []oci.Driver{oci.Cgroupfs, oci.Systemd} {
		class := driver.Class(v1.PodQOSBurstable)
		if filepath.Dir(path) != class {
			continue
		}
		if err := r.cgroups.SumWeights(class, driver.PodPrefix(v1.PodQOSBurstable)); err != nil {
			r.Log.Debug("CPU weight of burstable pods cannot be updated", "err", err)
		}
	}
}

// limits are the machine's properties on which the limits of every container depend.
type limits struct {
	memory            int64
	lowestOOMScoreAdj int
	swap              bool
	pageSizes         []int64
}

// lowestOOMScoreAdj is the lowest oom_score_adj that the kernel accepts.
const lowestOOMScoreAdj = -1000

// machineLimits detects the limits of the machine. A feature that cannot be detected counts as
// missing.
func machineLimits(cgroups *cgroup.Tree) limits {
	out := limits{lowestOOMScoreAdj: lowestOOMScoreAdj, swap: swapLimits(), pageSizes: supportedPageSizes(cgroups)}
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) == nil {
		out.memory = int64(info.Totalram) * int64(info.Unit)
	}
	have, err := cap.Current()
	if err != nil || slices.Contains(have, "CAP_SYS_RESOURCE") {
		return out
	}
	text, err := os.ReadFile("/proc/self/oom_score_adj") // trusted: the kernel's
	if err != nil {
		return out
	}
	if own, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
		out.lowestOOMScoreAdj = own
	}
	return out
}

// swapLimits reports whether cgroups can limit swap. On cgroup v2 the root cgroup has no file for
// it, so it checks podrun's own cgroup.
func swapLimits() bool {
	if !cgroup.Unified() {
		_, err := os.Stat("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes") // trusted: the kernel's
		return err == nil
	}
	text, err := os.ReadFile("/proc/self/cgroup") // trusted: the kernel's
	if err != nil {
		return false
	}
	path := strings.TrimPrefix(strings.TrimSpace(string(text)), "0::")
	_, err = os.Stat(filepath.Join("/sys/fs/cgroup", path, "memory.swap.max")) // trusted: the kernel's
	return err == nil
}

// removeCgroups removes the cgroups of a pod revision. They are empty by then, except for processes
// that interrupted starts left in them, which it kills.
func (r *Runtime) removeCgroups(ctx context.Context, uid pod.UID) error {
	mounts, err := hierarchies()
	if err != nil {
		return fmt.Errorf("listing the cgroup hierarchies: %w", err)
	}
	var all []error
	removed := map[string]bool{}
	for _, m := range mounts {
		for _, path := range oci.CgroupsOf(string(uid)) {
			dir := filepath.Join(m.Mountpoint, path)
			if _, err := os.Lstat(dir); err != nil {
				continue
			}
			removed[path] = true
			err := removeTree(dir)
			if errors.Is(err, syscall.EBUSY) {
				err = errors.Join(r.killUnknown(ctx, m.Mountpoint, path), removeEmptied(ctx, dir))
			}
			if err != nil {
				all = append(all, fmt.Errorf("removing a pod's cgroup: %w", err))
			}
		}
	}
	for path := range removed {
		if err := cgroup.StopSlice(ctx, path); err != nil {
			all = append(all, err)
		}
		r.weighBurstable(path)
	}
	return errors.Join(all...)
}

// removeEmptied is removeTree for a cgroup whose processes have just been killed: it retries while
// the cgroup is busy.
func removeEmptied(ctx context.Context, dir string) error {
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	var err error
	for range 100 {
		if err = removeTree(dir); !errors.Is(err, syscall.EBUSY) {
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return err
		}
	}
	return err
}

// removeTree removes a cgroup and those below it. It removes directories only: a cgroup's files are
// removed with it. It ignores a read-only hierarchy, which has no cgroups of podrun.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	err = syscall.Rmdir(dir)
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EROFS) {
		return nil
	}
	return &os.PathError{Op: "rmdir", Path: dir, Err: err}
}
