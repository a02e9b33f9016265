package device

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/checkpoint/layout"
)

const log = v1.ResourceName("podrun.example/log")

// asking is a container that asks for so many.
func asking(name, number string) v1.Container {
	c := v1.Container{Name: name}
	if number != "" {
		list := v1.ResourceList{log: resource.MustParse(number)}
		c.Resources = v1.ResourceRequirements{Limits: list, Requests: list}
	}
	return c
}

func TestShare(t *testing.T) {
	t.Parallel()
	sidecar := asking("sidecar", "1")
	sidecar.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	p := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{asking("before", "1"), sidecar, asking("init", "3"), asking("other", "2")},
		Containers:     []v1.Container{asking("one", "1"), asking("none", ""), asking("two", "2")},
	}}
	if got := wants(p, false)[log]; got != 4 {
		t.Fatalf("it wants %d", got)
	}
	has := map[v1.ResourceName][]string{log: {"a", "b", "c", "d"}}
	for name, want := range map[string]string{
		"before": "a", "sidecar": "a", "init": "b c d", "other": "b c", "one": "b", "none": "", "two": "c d",
	} {
		if got := strings.Join(share(p, name, has)[log], " "); got != want {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
	if got := wants(&v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{asking("none", "")}}}, false); got != nil {
		t.Errorf("nothing wants %v", got)
	}
}

// TestShareOfTooMany: counts that cannot be added up, of resources that nobody has, do no harm to others.
func TestShareOfTooMany(t *testing.T) {
	t.Parallel()
	none, most := v1.ResourceName("x.kubernetes.io/y"), resource.MustParse("9223372036854775807")
	p := &v1.Pod{}
	for _, name := range []string{"a", "b", "c"} {
		c := asking(name, "1")
		c.Resources.Limits = v1.ResourceList{log: resource.MustParse("1"), none: most}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	has := map[v1.ResourceName][]string{log: {"a", "b", "c"}}
	if got := share(p, "c", has); len(got) != 1 || got[log][0] != "c" {
		t.Errorf("%v", got)
	}
	d := New(Options{
		Dirs: layout.Dirs{Run: t.TempDir()}, Named: map[v1.ResourceName][]string{log: {"v/c=0", "v/c=1", "v/c=2"}},
		Present: func() (func(string) bool, error) { return in(nil), nil },
	})
	if err := d.Acquire(t.Context(), "s", p); err == nil || !strings.Contains(err.Error(), "has "+string(none)) {
		t.Error(err)
	}
}

func TestDevices(t *testing.T) {
	t.Parallel()
	dirs := layout.Dirs{Run: t.TempDir()}
	present := map[string]bool{}
	with := func(named ...string) *Devices {
		return New(Options{Dirs: dirs, Named: map[v1.ResourceName][]string{log: named}, Present: func() (func(string) bool, error) { return in(present), nil }})
	}
	d := with("v/c=0", "v/c=1", "v/c=2")
	p := func(number string) *v1.Pod {
		return &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{asking("c", number)}}}
	}
	of := func(d *Devices, id, number, want string) {
		t.Helper()
		present[id] = true
		got, err := d.Of(t.Context(), id, p(number), "c")
		text := strings.Join(got.CDI, " ")
		if err != nil {
			text = err.Error()
		}
		if text != want {
			t.Errorf("%s: %s, want %s", id, text, want)
		}
	}
	of(d, "s1", "2", "v/c=0 v/c=1")
	of(d, "s2", "1", "v/c=2")
	of(d, "s1", "2", "v/c=0 v/c=1")
	of(d, "s3", "1", "taking devices: podrun.example/log: the pod asks for 1, and 0 are free")
	of(d, "s4", "", "")
	if err := d.Release("s2"); err != nil {
		t.Fatal(err)
	}
	if err := d.Release("s2"); err != nil {
		t.Errorf("released again: %v", err)
	}
	of(d, "s3", "1", "v/c=2")
	delete(present, "s1") // its end was cut off before it was released
	of(d, "s5", "1", "v/c=0")
	if _, err := os.Stat(filepath.Join(dirs.SandboxFiles().Devices(), "s1")); err == nil {
		t.Error("the record of a sandbox that is gone stays")
	}
	// A torn record counts for nothing; a device that the node lost is kept by who has it.
	if err := os.WriteFile(filepath.Join(dirs.SandboxFiles().Devices(), "s3"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	of(with("v/c=1"), "s5", "1", "v/c=0")
	of(with("v/c=0", "v/c=1"), "s3", "1", "v/c=1")
	of(New(Options{Dirs: dirs, Present: d.o.Present}), "s6", "1", "taking devices: neither this node's --node-config nor a device plugin has podrun.example/log")
}

// in returns a function that reports whether an ID is one of a set.
func in(ids map[string]bool) func(string) bool { return func(id string) bool { return ids[id] } }
