package plan

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/pod"
)

func TestEvicted(t *testing.T) {
	always, never := v1.RestartPolicyAlways, v1.RestartPolicyNever
	box := sandbox(0, true)
	compare(t, []planCase{
		{"what runs is ended", Input{Pod: wanted(always, "a", "b"), Evicted: "full", Observed: observed(box, ctr("a", 0, pod.Running), ctr("b", 0, pod.Exited, reaped))}, `
terminate a a0 grace 2s (evicted)
wake 2s
Evicted`},
		{"its hook has a second", Input{Pod: wanted(always, "a"), Evicted: "full", Observed: observed(box, ctr("a", 0, pod.Running, preStop))}, `
run preStop hook of a a0 grace 1s (evicted)
wake 1s
Evicted`},
		{"if it has that much", Input{Pod: wanted(always, "a"), Evicted: "full", MaxGrace: new(time.Duration), Observed: observed(box, ctr("a", 0, pod.Running, preStop))}, `
kill a a0 (evicted)
Evicted`},
		{"nothing starts again", Input{Pod: wanted(always, "a"), Evicted: "full", Images: ready, Observed: observed(box, ctr("a", 0, pod.Exited, code(143), reaped))}, `
remove sandbox s0 (pod completed)
completed
Evicted`},
		{"it succeeded when it was told to end", Input{Pod: wanted(never, "a"), Evicted: "full", Observed: observed(ctr("a", 0, pod.Exited, reaped))}, `
completed
Evicted`},
	})
}

func TestExceeded(t *testing.T) {
	t.Parallel()
	p := wanted(v1.RestartPolicyAlways, "a", "b")
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
