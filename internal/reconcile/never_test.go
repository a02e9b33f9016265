package reconcile_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile"
)

// TestNeverStarts: only a pod that can never start on this machine is reported as such.
func TestNeverStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := make(chan string, 100)
		h := start(t, forever(), func(o *reconcile.Options) {
			o.Node = v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi")}
			o.Stuck = func(key pod.Key, err error) {
				var hint interface{ Hint() string }
				if !errors.As(err, &hint) || hint.Hint() == "" {
					t.Errorf("no hint: %v", err)
				}
				why <- key.Name + ": " + err.Error()
			}
		})
		defer h.stop()
		cpu, disk := asking("cpu", "1Mi"), asking("disk", "1Mi")
		cpu.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("64")
		disk.Spec.NodeSelector = map[string]string{"disk": "ssd"}
		h.want(asking("p", "600Mi"), asking("q", "600Mi"))
		after(time.Minute)
		if len(why) > 0 {
			t.Errorf("a pod that waits for another: %s", <-why)
		}
		for _, tt := range []struct {
			pod  *v1.Pod
			want string
		}{
			{asking("huge", "900Gi"), "huge: OutOfmemory: Node didn't have enough resource: memory, requested: 966367641600, used: 0, capacity: 1073741824"},
			{cpu, "cpu: OutOfcpu: Node didn't have enough resource: cpu, requested: 64000, used: 0, capacity: 2000"},
			{disk, "disk: NodeAffinity: the node does not have what nodeSelector asks for: disk=ssd"},
		} {
			h.want(tt.pod)
			after(time.Second)
			if len(why) == 0 {
				t.Fatalf("nothing is reported of %s", tt.pod.Name)
			}
			for len(why) > 0 {
				if got := <-why; got != tt.want {
					t.Errorf("%q, want %q", got, tt.want)
				}
			}
		}
	})
}
