package resources

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path"
	"slices"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/oci"
)

// spelled formats what is set on a cgroup.
func spelled(at string, r *specs.LinuxResources) string {
	out := path.Base(at)
	if r.CPU != nil {
		out += fmt.Sprint(" shares ", *r.CPU.Shares)
		if r.CPU.Quota != nil {
			out += fmt.Sprint(" quota ", *r.CPU.Quota)
		}
	}
	if r.Memory != nil {
		out += fmt.Sprint(" memory ", *r.Memory.Limit)
	}
	if r.Pids != nil {
		out += fmt.Sprint(" pids ", *r.Pids.Limit)
	}
	return out
}

// TestCreate: the first pod's start sets the weights above, and keeps going if it cannot; the next tries again, until
// they are set; each pod's cgroup is said which limits it does not have.
func TestCreate(t *testing.T) {
	t.Parallel()
	free := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{}}}}
	free.UID = "f"
	sized := free.DeepCopy()
	sized.UID, sized.Spec.Containers[0].Resources.Requests = "s", v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m")}
	for _, c := range []struct {
		driver oci.Driver
		want   []string
	}{
		{oci.Cgroupfs, []string{
			"podrun shares 3072", "besteffort shares 2", "podrun shares 3072", "besteffort shares 2",
			fmt.Sprint("pods shares 512 quota -1 memory ", math.MaxInt64, " pids -1"),
		}},
		{oci.Systemd, []string{
			"podrun.slice shares 3072", "podrun-besteffort.slice shares 2",
			"podrun.slice shares 3072", "podrun-besteffort.slice shares 2",
			fmt.Sprint("podrun-burstable-pods.slice shares 512 quota -1 memory ", math.MaxInt64, " pids -1"),
		}},
	} {
		var set []string
		g := &PodCgroups{
			tree: &cgroup.Tree{}, machine: &Machine{}, driver: c.driver, log: slog.New(slog.DiscardHandler),
			rules: oci.PodRules{CPUs: 3},
			apply: func(at string, r *specs.LinuxResources) error {
				set = append(set, spelled(at, r))
				if r.Memory == nil && len(set) < 3 {
					return errors.New("not here")
				}
				return nil
			},
		}
		for _, p := range []*v1.Pod{free, sized, free} {
			if err := g.Create(p, c.driver); err != nil {
				t.Errorf("%s: pod %s: %v", c.driver, p.UID, err)
			}
		}
		if !slices.Equal(set, c.want) {
			t.Errorf("%s: set %q, want %q", c.driver, set, c.want)
		}
		// Another podrun has removed its cgroup; there is none in an empty tree.
		set = nil
		g.apply = func(at string, r *specs.LinuxResources) error { set = append(set, spelled(at, r)); return nil }
		if err := g.Fit(sized, c.driver, nil); err != nil || len(set) != 1 || set[0] != c.want[len(c.want)-1] {
			t.Errorf("%s: a cgroup that is gone: %v, set %q", c.driver, err, set)
		}
		if err := g.Fit(free, c.driver, nil); err != nil || len(set) != 1 {
			t.Errorf("%s: without limits: %v, set %q", c.driver, err, set)
		}
		g.rules.MaxPids, set = 7, nil
		if err := g.Fit(free, c.driver, nil); err != nil || len(set) != 1 {
			t.Errorf("%s: with a limit of processes only: %v, set %q", c.driver, err, set)
		}
		g.apply = func(string, *specs.LinuxResources) error { return errors.New("not here") }
		if err := g.Create(free, c.driver); err == nil {
			t.Errorf("%s: limits of the pod cannot be set, but it may start", c.driver)
		}
	}
}
