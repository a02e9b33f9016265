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

// hierarchies are where the cgroup hierarchies are mounted: one for v2, several for v1.
func hierarchies() ([]*mountinfo.Info, error) {
	return mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
}

// cgroupOf is the path of a container's cgroup, in each hierarchy; "" if its record does not say.
func cgroupOf(c containers.Container) string { return oci.CgroupDir(cgroupsPathOf(c)) }

// cgroupsPathOf is what the container's spec says of its cgroup.
func cgroupsPathOf(c containers.Container) string {
	if spec := specOf(c); spec.Linux != nil {
		return spec.Linux.CgroupsPath
	}
	return ""
}

// specOf is the container's spec, an empty one if its record has none.
func specOf(c containers.Container) (spec specs.Spec) {
	if c.Spec == nil || json.Unmarshal(c.Spec.GetValue(), &spec) != nil {
		return specs.Spec{}
	}
	return spec
}

// filesIn reads files of a cgroup, those that are there.
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

// processesIn are the processes in a cgroup.
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

// oomKilled reports that the kernel killed a process in the container's cgroup for want of memory. It
// is asked while the task is not deleted, so the cgroup is still there.
func oomKilled(c containers.Container) bool {
	return slices.ContainsFunc(filesIn(cgroupOf(c), "memory.oom_control", "memory.events"), oomKills) // v1 and v2
}

func oomKills(text string) bool {
	for line := range strings.Lines(text) {
		if count, ok := strings.CutPrefix(line, "oom_kill "); ok {
			return strings.TrimSpace(count) != "0"
		}
	}
	return false
}

// limitPod makes the cgroup of a pod that asks for something, above its containers'.
func (r *Runtime) limitPod(p *v1.Pod, driver oci.Driver) error {
	if !r.classed.Load() {
		if r.limits.lowestOOMScoreAdj > lowestOOMScoreAdj {
			r.Log.Info("without CAP_SYS_RESOURCE no container gets a lower oom_score_adj than podrun's own",
				"lowest", r.limits.lowestOOMScoreAdj)
		}
		if err := r.cgroups.Set(driver.Class(v1.PodQOSBestEffort), oci.ClassResources()); err != nil {
			r.Log.Warn("best-effort pods get as much CPU time as others", "why", err)
		}
		r.classed.Store(true)
	}
	resources := oci.PodResources(p, r.PodMaxPids)
	if resources == nil {
		return nil
	}
	return r.setPod(p, driver, resources)
}

// setPod gives the pod's own cgroup these resources.
func (r *Runtime) setPod(p *v1.Pod, driver oci.Driver, resources *specs.LinuxResources) error {
	if err := r.cgroups.Set(driver.OfPod(p), resources); err != nil {
		return err
	}
	r.weighBurstable(driver.OfPod(p))
	return nil
}

// weighBurstable gives all burstable pods together the weight that they ask for, when the cgroup of one of
// them has come or gone.
func (r *Runtime) weighBurstable(path string) {
	for _, driver := range []oci.Driver{oci.Cgroupfs, oci.Systemd} {
		class := driver.Class(v1.PodQOSBurstable)
		if filepath.Dir(path) != class {
			continue
		}
		if err := r.cgroups.SumWeights(class, driver.PodPrefix(v1.PodQOSBurstable)); err != nil {
			r.Log.Debug("burstable pods keep the weight that they had", "why", err)
		}
	}
}

// limits are what this machine can give to all containers.
type limits struct {
	memory            int64
	lowestOOMScoreAdj int
	swap              bool
	pageSizes         []int64
}

// lowestOOMScoreAdj is the kernel's lowest.
const lowestOOMScoreAdj = -1000

// machineLimits looks at the machine; what cannot be told is taken as not there.
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

// swapLimits reports that cgroups can limit swap. On version 2 the root has no file for it.
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

// removeCgroups removes the cgroups of a revision of a pod, which are empty by then, but for what starts
// that were cut off left in them.
func (r *Runtime) removeCgroups(ctx context.Context, uid pod.UID) error {
	mounts, err := hierarchies()
	if err != nil {
		return fmt.Errorf("looking for the cgroup hierarchies: %w", err)
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
				err = errors.Join(r.endForgotten(ctx, m.Mountpoint, path), removeEmptied(ctx, dir))
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

// removeEmptied is removeTree for a cgroup whose processes were just killed.
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

// removeTree removes a cgroup and those below it. It removes directories only: a cgroup's files go with
// it. A read-only hierarchy holds nothing of podrun's.
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
