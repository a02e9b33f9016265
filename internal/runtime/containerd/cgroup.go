package containerd

import (
	"context"
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

	"github.com/containerd/containerd/v2/pkg/cap"
	"github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/containerd/instance"
)

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
	mounts, err := instance.Hierarchies()
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
