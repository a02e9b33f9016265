package storage

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/pod"
)

// TestExceeded checks which limit of local storage evicts a pod, and the kubelet's message. An emptyDir in memory or without a
// sizeLimit has no limit of its own. If any container has a limit, the sum of all limits is the limit of the whole pod.
func TestExceeded(t *testing.T) {
	t.Parallel()
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a"}, {Name: "b"}}}}
	empty := func(name string, limit string, medium v1.StorageMedium) {
		e := &v1.EmptyDirVolumeSource{Medium: medium}
		if limit != "" {
			e.SizeLimit = new(resource.MustParse(limit))
		}
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: e}})
	}
	empty("v", "10", v1.StorageMediumDefault)
	empty("free", "", v1.StorageMediumDefault)
	empty("memory", "10", v1.StorageMediumMemory)
	none := p.DeepCopy()
	none.Spec.Volumes = nil
	limit := func(c *v1.Container, bytes string) {
		c.Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse(bytes)}
	}
	volumes := p.DeepCopy()
	limit(&p.Spec.Containers[0], "1Ki")
	both := p.DeepCopy()
	limit(&both.Spec.Containers[1], "2Ki")
	for _, c := range []struct {
		name                string
		pod                 *v1.Pod
		volumes, containers map[string]int64
		etc                 int64
		want                string
	}{
		{"no limits", none, map[string]int64{"v": 1 << 40}, map[string]int64{"a": 1 << 40}, 1 << 40, ""},
		{"at its limit", volumes, map[string]int64{"v": 10, "memory": 11}, nil, 0, ""},
		{"a volume beyond it", volumes, map[string]int64{"v": 11}, nil, 0, `Usage of EmptyDir volume "v" exceeds the limit "10".`},
		{"a container at its limit", p, map[string]int64{"v": 10, "free": 14}, map[string]int64{"a": 1000}, 0, ""},
		{"/etc/hosts beyond it", p, nil, map[string]int64{"a": 1000}, 25, "Pod ephemeral local storage usage exceeds the total limit of containers 1Ki."},
		{"all together beyond it", p, map[string]int64{"v": 10, "free": 14}, map[string]int64{"a": 1000, "b": 1}, 0, "Pod ephemeral local storage usage exceeds the total limit of containers 1Ki."},
		{"one container of two", both, nil, map[string]int64{"a": 1025, "b": 1}, 0, `Container a exceeded its local ephemeral storage limit "1Ki".`},
		{"two containers together", both, map[string]int64{"free": 1025}, map[string]int64{"a": 1024, "b": 1024}, 0, "Pod ephemeral local storage usage exceeds the total limit of containers 3Ki."},
	} {
		if got := Exceeded(c.pod, pod.Usage{Volumes: c.volumes, Containers: c.containers, Etc: c.etc}); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
