package resources

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/containerd/orphan"
	"podrun.io/podrun/internal/sys/memo"
)

// PodCgroupsOptions configure PodCgroups. All are required.
type PodCgroupsOptions struct {
	Machine *Machine
	Orphans *orphan.Cleaner
	Rules   oci.PodRules
	// Driver is the cgroup driver of new pods.
	Driver oci.Driver
	Log    *slog.Logger
}

// PodCgroups are the cgroups of pods, the parents of their containers' cgroups. Its methods may be
// called concurrently.
type PodCgroups struct {
	tree    *cgroup.Tree
	machine *Machine
	orphans *orphan.Cleaner
	rules   oci.PodRules
	driver  oci.Driver
	log     *slog.Logger
	// apply and stopSlice are methods of tree.
	apply     func(path string, resources *specs.LinuxResources) error
	stopSlice func(ctx context.Context, path string) error
	// weighed says of a driver whether the cgroups above those of pods have their CPU weights. Without an entry that
	// was not tried yet.
	weighed memo.Map[oci.Driver, bool]
	// sizes maps revisions to the resources that the cgroup of the pod was set to last, in the form
	// of pod.SizeOf.
	sizes memo.Map[pod.UID, string]
}

// NewPodCgroups returns PodCgroups.
func NewPodCgroups(o PodCgroupsOptions) *PodCgroups {
	tree := o.Machine.cgroups
	return &PodCgroups{
		tree: tree, machine: o.Machine, orphans: o.Orphans, rules: o.Rules, driver: o.Driver, log: o.Log,
		apply: tree.Set, stopSlice: tree.StopSlice,
	}
}

// Create creates the cgroup of a pod, the parent of its containers' cgroups, if there are resources to set on it, and
// sets them. One that exists, as of the pod's former sandbox, loses the limits that the pod does not have any more. The
// first call also weighs the cgroups above.
func (g *PodCgroups) Create(p *v1.Pod, driver oci.Driver) error {
	g.weighParents(driver)
	if oci.PodResources(p, g.rules) != nil || g.tree.Exists(driver.OfPod(p)) {
		if err := g.set(p, driver, oci.PodUpdate(p, g.rules)); err != nil {
			return err
		}
	}
	g.sizes.Put(p.UID, pod.SizeOf(p))
	return nil
}

// Adopt weighs the cgroups above those of the pods that are there.
func (g *PodCgroups) Adopt() {
	for _, driver := range []oci.Driver{oci.Cgroupfs, oci.Systemd} {
		if g.tree.Exists(driver.Root()) {
			g.weighParents(driver)
		}
	}
}

// weighParents sets the CPU weights of the cgroups of all pods and of the best-effort class, also of those that an
// earlier podrun has created. A weight that cannot be set keeps no pod from starting, and is tried again with the next.
func (g *PodCgroups) weighParents(driver oci.Driver) {
	done, again := g.weighed.Get(driver)
	if done {
		return
	}
	level := slog.LevelWarn
	if again { // said already
		level = slog.LevelDebug
	} else if g.machine.limits.lowestOOMScoreAdj > lowestOOMScoreAdj {
		g.log.Info("capability CAP_SYS_RESOURCE is missing: no container gets a lower oom_score_adj than podrun's own",
			"lowest", g.machine.limits.lowestOOMScoreAdj)
	}
	root := g.apply(driver.Root(), oci.RootResources(g.rules))
	if root != nil {
		g.log.Log(context.Background(), level, "cgroup of all pods cannot be configured: CPU requests do not hold against "+
			"the machine's other processes", "err", root)
	}
	class := g.apply(driver.Class(v1.PodQOSBestEffort), oci.ClassResources())
	if class != nil {
		g.log.Log(context.Background(), level, "cgroup of best-effort pods cannot be configured: they get as much CPU time "+
			"as others", "err", class)
	}
	g.weighed.Put(driver, root == nil && class == nil)
}

// set sets the resources of the pod's own cgroup.
func (g *PodCgroups) set(p *v1.Pod, driver oci.Driver, resources *specs.LinuxResources) error {
	if err := g.apply(driver.OfPod(p), resources); err != nil {
		return err
	}
	g.weighBurstable(driver.OfPod(p))
	return nil
}

// weighBurstable sets the CPU weight of the cgroup of all burstable pods to the sum of theirs. It
// is called with the path of a pod's cgroup that was created or removed, and does nothing for pods
// of another class.
func (g *PodCgroups) weighBurstable(path string) {
	for _, driver := range []oci.Driver{oci.Cgroupfs, oci.Systemd} {
		class := driver.Class(v1.PodQOSBurstable)
		if filepath.Dir(path) != class {
			continue
		}
		if err := g.tree.SumWeights(class, driver.PodPrefix(v1.PodQOSBurstable)); err != nil {
			g.log.Debug("CPU weight of burstable pods cannot be updated", "err", err)
		}
	}
}

// fits returns an error if a memory limit is below the memory in use: a kernel that accepts such a
// limit frees the memory by killing processes. As in the kubelet, except that file pages that are
// not in use do not count, because the kernel reclaims them.
func (g *PodCgroups) fits(dir string, to *specs.LinuxResources) error {
	if to == nil || to.Memory == nil || to.Memory.Limit == nil || *to.Memory.Limit <= 0 {
		return nil
	}
	used, err := g.tree.Usage(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, cgroup.ErrNoUsage):
		return nil // nothing runs in it, or nothing is limited here
	case err != nil:
		return err
	case used.WorkingSet > *to.Memory.Limit:
		return fmt.Errorf("the memory limit %d is below the memory in use, %d", *to.Memory.Limit, used.WorkingSet)
	}
	return nil
}

// ErrOversized reports that a pod keeps a memory limit that is larger than it should be.
var ErrOversized = errors.New("the memory limit of the pod stays")

// Fit sets the pod's own cgroup to the sum of what its containers want and, as long as their instances
// run with more, of that (see runtime.Resize). So the pod gets larger before they do, and smaller after
// the last of them has. It leaves a memory limit as it is if less than the memory in use is wanted, and returns
// ErrOversized.
func (g *PodCgroups) Fit(p *v1.Pod, driver oci.Driver, running map[string]string) error {
	has := held(p, running)
	size := pod.SizeOf(has)
	had, known := g.sizes.Get(p.UID)
	// Another podrun, which has the same pod, may have removed it.
	there := oci.PodResources(p, g.rules) == nil || g.tree.Exists(driver.OfPod(p))
	if there && (known && had == size || size == "") {
		return nil
	}
	resources := oci.PodUpdate(has, g.rules)
	misfit := g.fits(driver.OfPod(p), resources)
	if misfit != nil {
		resources.Memory = nil
	}
	if err := g.set(p, driver, resources); err != nil {
		return err
	}
	if misfit != nil {
		return fmt.Errorf("%w: %w", ErrOversized, misfit)
	}
	g.sizes.Put(p.UID, size)
	return nil
}
