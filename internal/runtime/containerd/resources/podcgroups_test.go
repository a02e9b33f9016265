package resources

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/oci"
)

// TestWanted: a pod that limits nothing has a cgroup of its own where systemd would otherwise make one.
func TestWanted(t *testing.T) {
	t.Parallel()
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
	for _, c := range []struct {
		driver oci.Driver
		pids   int64
		want   bool
	}{{oci.Cgroupfs, 0, false}, {oci.Systemd, 0, true}, {oci.Cgroupfs, 7, true}, {oci.Systemd, 7, true}} {
		got := (&PodCgroups{rules: oci.PodRules{MaxPids: c.pids}}).wanted(p, c.driver)
		if (got != nil) != c.want || got != nil && (got.Pids != nil) != (c.pids > 0) {
			t.Errorf("%s, at most %d processes: %+v", c.driver, c.pids, got)
		}
	}
}
