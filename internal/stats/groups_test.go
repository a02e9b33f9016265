package stats

import (
	"errors"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/stats/disk"
	"podrun.io/podrun/internal/sys"
)

func TestGroups(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{pids: []int{5, 6}, links: []sys.Link{{Name: "eth0", RxBytes: 1}}, usage: disk.Usage{
			Roots: map[string]pod.Space{"a": {Bytes: 10, Files: 1}},
		}}
		o := w.options()
		o.Disks.Device = func(path string) string { return "/dev/" + path[1:] }
		o.Machine = func() (sys.Usage, error) { return sys.Usage{Processors: 2}, nil }
		of := map[string]cgroup.Details{
			"/podrun/besteffort/podu1":     {OOMKills: 2},
			"/podrun/besteffort/podu1/ida": {OOMKills: 1, Tasks: 3},
		}
		o.Details = func(path string) (cgroup.Details, error) {
			if d, ok := of[path]; ok {
				return d, nil
			}
			return cgroup.Details{}, fs.ErrNotExist
		}
		s := New(o)
		began := time.Now()
		web := stored()
		web.Status.StartTime = &metav1.Time{Time: began}
		web.Status.ContainerStatuses[0].Image = "app:1"
		web.Status.ContainerStatuses[0].State.Running.StartedAt = metav1.Time{Time: began}
		done := v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "job-n", UID: "u2"}}
		pods := []v1.Pod{web, done}
		got, err := s.Groups(t.Context(), pods)
		if err != nil || len(got.All) != 2 || got.Machine.Processors != 2 || len(got.Links) != 2 {
			t.Fatalf("%+v, %v", got, err)
		}
		a, whole := got.All[0], got.All[1]
		if a.Container != "a" || a.ID != "ida" || a.Image != "app:1" || a.Path != "/podrun/besteffort/podu1/ida" || a.Details.Tasks != 3 ||
			a.Details.OOMKills != 1 || a.Processes != 2 || a.Links != nil || *a.Disk != (pod.Space{Bytes: 10, Files: 1}) || !a.Started.Equal(began) {
			t.Errorf("the container %+v", a)
		}
		if whole.Container != "" || whole.Path != "/podrun/besteffort/podu1" || whole.Details.OOMKills != 2 || len(whole.Links) != 1 ||
			whole.Processes != 2 || whole.Disk != nil || whole.Pod.Name != "web-n" || !whole.Started.Equal(began) {
			t.Errorf("the pod %+v", whole)
		}
		if total := got.Totals(); len(total) != 1 || total[0] != (Total{
			Pod: pod.KeyOf(&web), UID: "u1", Network: true, Received: 1, Disk: 10,
		}) {
			t.Errorf("%+v", total)
		}
		if got.Data.Device != "/dev/data" || got.Data.Capacity != 1000 || got.Layers.Device != "/dev/root" {
			t.Errorf("%+v, %+v", got.Data, got.Layers)
		}
		// Scrapes do not measure the same trees again and again.
		time.Sleep(scrapedFor / 2)
		if _, err = s.Groups(t.Context(), pods); err != nil || w.measured != 2 { // two pods
			t.Errorf("%d measurements, %v", w.measured, err)
		}
		time.Sleep(scrapedFor)
		if _, err = s.Groups(t.Context(), pods); err != nil || w.measured != 4 {
			t.Errorf("%d measurements, %v", w.measured, err)
		}
		// A pod in the host's network has no interfaces of its own.
		pods[0].Spec.HostNetwork = true
		if got, err = s.Groups(t.Context(), pods); err != nil || got.All[1].Links != nil {
			t.Errorf("%+v, %v", got, err)
		}
		// What cannot be read is left out: a container that has just ended, and the machine.
		delete(of, "/podrun/besteffort/podu1/ida")
		s.o.Machine = func() (sys.Usage, error) { return sys.Usage{}, errors.New("no /proc") }
		if got, err = s.Groups(t.Context(), pods); err == nil || len(got.All) != 0 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// TestWeighed: a container's weight is told as it was asked for, whichever runc has set it.
func TestWeighed(t *testing.T) {
	t.Parallel()
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a", Resources: v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")},
	}}}}}
	for _, c := range []struct {
		name      string
		container string
		has       cgroup.Quota
		want      int64
	}{
		{"runc 1.1", "a", cgroup.Quota{Shares: 14, LinearShares: 80}, 80},
		{"runc 1.4", "a", cgroup.Quota{Shares: 102, LinearShares: 421}, 102},
		{"version 1", "a", cgroup.Quota{Shares: 102}, 102},
		{"not in the manifest", "b", cgroup.Quota{Shares: 14, LinearShares: 80}, 14},
	} {
		if got := weighed(p, c.container, cgroup.Details{Quota: c.has}).Quota.Shares; got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
