package device

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/device/cpus"
)

// limited is a container with as much CPU, and memory.
func limited(name, cpu string) v1.Container {
	return v1.Container{Name: name, Resources: v1.ResourceRequirements{Limits: v1.ResourceList{
		v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse("1Mi"),
	}}}
}

func TestCPUs(t *testing.T) {
	t.Parallel()
	dirs := layout.Dirs{Run: t.TempDir()}
	present := map[string]bool{"s": true, "t": true, "u": true}
	all := cpuset.New(0, 1, 2, 3, 4, 5, 6, 7) // cores of two: 0 and 4, 1 and 5, 2 and 6, 3 and 7
	topology := cpus.Topology{}
	for id := range 8 {
		topology[id] = cpus.Position{Core: id % 4}
	}
	o := Options{
		Dirs: dirs, Present: func() (func(string) bool, error) { return in(present), nil },
		CPUs: CPUs{Static: true, All: all, Reserved: cpuset.New(0), Topology: topology},
	}
	d := New(o)
	changes := 0
	d.OnChange(func() { changes++ })
	// of returns where the containers of a pod are to run, after those that are to be their own have been chosen.
	of := func(id string, p *v1.Pod) string {
		t.Helper()
		if err := d.Acquire(t.Context(), id, p); err != nil {
			return err.Error()
		}
		c := d.CPUs(id, p)
		var out []string
		for _, name := range slices.Sorted(maps.Keys(c.Own)) {
			out = append(out, name+"="+c.Own[name])
		}
		return strings.Join(append(out, "shared "+c.Shared), " ")
	}
	pod := func(containers ...v1.Container) *v1.Pod { return &v1.Pod{Spec: v1.PodSpec{Containers: containers}} }
	expect := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	other := pod(limited("c", "1500m"))
	expect(of("t", other), "shared 0-7")
	if entries, err := os.ReadDir(dirs.SandboxFiles().Devices()); !errors.Is(err, os.ErrNotExist) || changes != 0 {
		t.Errorf("recorded though it has none: %v, %v, %d changes", entries, err, changes)
	}
	whole := pod(limited("a", "2"), limited("b", "1"), limited("half", "500m"))
	whole.Spec.InitContainers = []v1.Container{limited("init", "1"), limited("side", "1")}
	whole.Spec.InitContainers[1].RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	if got := d.CPUs("s", whole); got.Own["a"] != "unchosen" || got.Shared != "0-7" {
		t.Errorf("before: %+v", got)
	}
	// The init container's is the sidecar's, which is the other half of the core of the reserved one.
	expect(of("s", whole), "a=1,5 b=2 init=4 side=4 shared 0,3,6-7")
	expect(of("s", whole), "a=1,5 b=2 init=4 side=4 shared 0,3,6-7")
	if changes != 1 {
		t.Errorf("%d changes", changes)
	}
	expect(of("t", other), "shared 0,3,6-7")
	if got := d.HeldBy("s", whole); fmt.Sprint(got["a"]) != "map[cpu:[1 5]]" || got["half"] != nil {
		t.Errorf("held: %v", got)
	}
	if given, err := d.Of(t.Context(), "s", whole, "a"); err != nil || len(given.CDI)+len(given.IDs)+len(given.Answers) > 0 {
		t.Errorf("given as devices: %+v, %v", given, err)
	}
	// Another process finds the same.
	d = New(o)
	d.OnChange(func() { changes++ })
	expect(of("s", whole), "a=1,5 b=2 init=4 side=4 shared 0,3,6-7")
	// Too many: nothing is taken.
	expect(of("u", pod(limited("c", "4"))), "taking devices: cpu: the pod asks for 4, and 3 are free")
	expect(of("t", other), "shared 0,3,6-7")
	// Made larger, smaller, and so small that it shares: in place, and what it has is kept.
	second := pod(limited("c", "1"))
	expect(of("u", second), "c=6 shared 0,3,7")
	expect(of("u", pod(limited("c", "2"))), "c=3,6 shared 0,7")
	expect(of("u", pod(limited("c", "1"))), "c=6 shared 0,3,7")
	expect(of("u", pod(limited("c", "100m"))), "shared 0,3,6-7")
	expect(of("u", second), "c=6 shared 0,3,7")
	// One whose removal was cut off, and one that is released.
	before := changes
	delete(present, "u")
	expect(of("t", other), "shared 0,3,6-7")
	if err := d.Release("s"); err != nil {
		t.Fatal(err)
	}
	if changes != before+1 {
		t.Errorf("%d changes at the release", changes-before)
	}
	expect(of("t", other), "shared 0-7")
	if err := d.Release("t"); err != nil || changes != before+1 {
		t.Errorf("%v, %d changes at the release of nothing", err, changes-before)
	}
	// One that is reserved by now is exchanged.
	present["u"] = true
	expect(of("u", second), "c=6 shared 0-5,7")
	o.CPUs.Reserved = cpuset.New(0, 6)
	d = New(o)
	if got := d.CPUs("u", second); got.Own["c"] != "unchosen" {
		t.Errorf("on a reserved one: %+v", got)
	}
	expect(of("u", second), "c=4 shared 0-3,5-7")
	if n := o.CPUs.Offered(); n != 6 {
		t.Errorf("%d CPUs are offered", n)
	}
	if n := (CPUs{Static: true, All: all}).Offered(); n != runtime.NumCPU() {
		t.Errorf("%d CPUs are offered of a machine that reserves none", n)
	}
	// With resources of the pod's own, nothing is a container's.
	ofPod := second.DeepCopy()
	ofPod.Spec.Resources = &ofPod.Spec.Containers[0].Resources
	expect(of("t", ofPod), "shared 0-3,5-7")
	// Of the policy none.
	o.CPUs.Static = false
	d = New(o)
	present["s"] = true
	expect(of("s", whole), "shared ")
	if got := d.CPUs("s", whole); got.Of("a", "") != "" || got.Of("a", "1,5") != "0-7" {
		t.Errorf("without the policy: %+v", got)
	}
	if _, err := os.Stat(filepath.Join(dirs.SandboxFiles().Devices(), "s")); err == nil {
		t.Error("recorded without the policy")
	}
}
