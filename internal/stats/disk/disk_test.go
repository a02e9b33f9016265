package disk

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/plan/storage"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/test"
)

// layers holds the sizes of instances' writable layers.
type layers map[string]int64

func (l layers) LayerSize(_ context.Context, id string) (pod.Space, error) {
	size, ok := l[id]
	if !ok {
		return pod.Space{}, errors.New("asked about " + id)
	}
	return pod.Space{Bytes: size, Files: 1}, nil
}

// TestEtcOutgrowsItsPod: a container writes to the files that podrun provides until its pod exceeds
// its limit.
func TestEtcOutgrowsItsPod(t *testing.T) {
	dirs := layout.Dirs{Root: t.TempDir(), Run: t.TempDir(), Log: t.TempDir()}
	p := limited("1Mi")
	m := New(dirs, layers{"a0": 0})
	exceeded := func(path string) string {
		t.Helper()
		if err := os.Truncate(path, 1<<40); err != nil {
			t.Fatal(err)
		}
		sparse, err := m.Measure(t.Context(), p, []pod.Container{{ID: "a0", Name: "a"}})
		if why := storage.Exceeded(p, sparse); err != nil || why != "" {
			t.Errorf("sparse: %q, %v", why, err)
		}
		write(t, path, 2<<20)
		used, err := m.Measure(t.Context(), p, []pod.Container{{ID: "a0", Name: "a"}})
		if err := errors.Join(err, os.Remove(path)); err != nil {
			t.Fatal(err)
		}
		return storage.Exceeded(p, used)
	}
	for _, path := range []string{dirs.Revision("u1").Etc() + "/hosts", dirs.Revision("u1").Etc() + "/resolv.conf", dirs.Legacy().Etc("u1") + "/hosts",
		layout.TerminationLog(dirs.Revision("u1").RawLog("a", "a0"))} {
		write(t, path, 0)
		if why := exceeded(path); !strings.Contains(why, "exceeds the total limit of containers 1Mi") {
			t.Errorf("%s: %q", path, why)
		}
	}
}

// TestConfigMapOutgrowsItsPod: files that podrun writes to the disk for a pod count against its limit;
// those with a Secret or fields of the pod are in memory.
func TestConfigMapOutgrowsItsPod(t *testing.T) {
	dirs := layout.Dirs{Root: t.TempDir(), Run: t.TempDir(), Log: t.TempDir()}
	m := New(dirs, layers{})
	for kind, c := range map[string]struct {
		source v1.VolumeSource
		counts bool
	}{
		layout.KindConfigMap:   {v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}, true},
		layout.KindDownwardAPI: {v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{}}, false},
		layout.KindProjected:   {v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{}}, true},
		layout.KindSecret:      {v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}, false},
	} {
		p := limited("1Mi")
		p.Spec.Volumes = []v1.Volume{{Name: "c", VolumeSource: c.source}}
		write(t, dirs.Revision("u1").Volume(kind, "c")+"/..1/file", 2<<20)
		used, err := m.Measure(t.Context(), p, nil)
		if why := storage.Exceeded(p, used); err != nil || c.counts != strings.Contains(why, "exceeds the total limit of containers 1Mi") {
			t.Errorf("%s: %q, %v", kind, why, err)
		}
	}
	secret := v1.Volume{VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{Secret: &v1.SecretProjection{}}}}}}
	if pod.Counts(&secret) {
		t.Error("a projected Secret counts")
	}
}

func write(t *testing.T, path string, size int) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, make([]byte, size), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// limited returns a pod with two volumes, one of them with a limit, and two containers, the first
// of which has the limit storage unless it is "".
func limited(storage string) *v1.Pod {
	p := &v1.Pod{}
	p.Namespace, p.Name, p.UID = "default", "p", "u1"
	empty := func(name string, e v1.EmptyDirVolumeSource) {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: &e}})
	}
	empty("v", v1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse("64Ki"))})
	empty("free", v1.EmptyDirVolumeSource{})
	empty("memory", v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, SizeLimit: new(resource.MustParse("64Ki"))})
	p.Spec.Containers = []v1.Container{{Name: "a"}, {Name: "b"}}
	if storage != "" {
		p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse(storage)}
	}
	return p
}

func TestMeasure(t *testing.T) {
	const kb, slack = 1 << 10, 24 << 10 // directories take some, too
	dirs := layout.Dirs{Root: t.TempDir(), Run: t.TempDir(), Log: t.TempDir()}
	p := limited("1Mi")
	v := dirs.Revision("u1").EmptyDir("v")
	outside := filepath.Join(t.TempDir(), "large")
	for _, path := range []string{outside, v + "/one", v + "/deep/two", dirs.Revision("u1").EmptyDir("free") + "/any", dirs.Revision("u1").EmptyDir("memory") + "/any",
		dirs.ContainerLog(pod.KeyOf(p), "u1", "a", 0), dirs.ContainerLog(pod.KeyOf(p), "u1", "a", 1), dirs.Revision("u1").RawLog("a", "id") + "/stdout.raw",
		dirs.ContainerLog(pod.KeyOf(p), "u1", "b", 0)} {
		write(t, path, 100*kb)
	}
	sparse, err := os.Create(v + "/sparse")
	if err := errors.Join(err, sparse.Truncate(1<<30), sparse.Close(), os.Symlink(outside, v+"/link"), os.Link(v+"/one", v+"/same")); err != nil {
		t.Fatal(err)
	}
	m := New(dirs, layers{"a1": 50 * kb, "b0": 0})
	instances := []pod.Container{{ID: "a1", Name: "a"}, {ID: "b0", Name: "b"}}
	// A container has written to one file, and created another one that is larger than any disk.
	write(t, dirs.Revision("u1").Etc()+"/hosts", 100*kb)
	write(t, dirs.Legacy().Etc("u1")+"/hosts", 100*kb)
	write(t, dirs.Revision("u1").Etc()+"/resolv.conf", 0)
	if err := os.Truncate(dirs.Revision("u1").Etc()+"/resolv.conf", 1<<40); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		pod                 *v1.Pod
		volumes, containers map[string]int64
		etc                 int64
	}{
		"a volume's limit only": {limited(""), map[string]int64{"v": 200}, nil, 0},
		"a container's too":     {p, map[string]int64{"v": 200, "free": 100}, map[string]int64{"a": 350, "b": 100}, 200},
	} {
		used, err := m.Measure(t.Context(), c.pod, instances)
		if err != nil {
			t.Fatal(name, err)
		}
		about := func(got, want map[string]int64) {
			t.Helper()
			if !maps.EqualFunc(got, want, func(g, w int64) bool { return g >= w*kb && g <= w*kb+slack }) {
				t.Errorf("%s: %v, want %v KiB", name, got, want)
			}
		}
		about(used.Volumes, c.volumes)
		about(used.Containers, c.containers)
		about(map[string]int64{"etc": used.Etc}, map[string]int64{"etc": c.etc})
	}
	if _, err := m.Measure(t.Context(), p, []pod.Container{{ID: "gone", Name: "a"}}); err == nil {
		t.Error("what cannot be measured counts as nothing")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Measure(ended, p, instances); !errors.Is(err, context.Canceled) {
		t.Errorf("after its end: %v", err)
	}
}

// TestUsageWithoutClaims: the file system of the claims may not answer, and so is not accessed.
func TestUsageWithoutClaims(t *testing.T) {
	dirs := layout.Dirs{Root: t.TempDir(), Run: t.TempDir(), Log: t.TempDir()}
	test.HangingMount(t, dirs.Claims())
	p := limited("")
	p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "c", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}})
	used := make(chan Usage, 1)
	go func() {
		all, err := New(dirs, layers{}).Usage(t.Context(), p)
		if err != nil {
			t.Error(err)
		}
		used <- all
	}()
	select {
	case all := <-used:
		if _, is := all.Volumes["c"]; is || len(all.Volumes) != 3 {
			t.Errorf("%+v", all.Volumes)
		}
	case <-time.After(20 * time.Second):
		t.Error("it waits for the claims")
	}
}

// TestClaimBehindALink: whoever serves the file system of the claims has put a link in the place of a claim, or of its
// namespace's directory: what it leads to is not measured.
func TestClaimBehindALink(t *testing.T) {
	dirs, outside := layout.Dirs{Root: t.TempDir()}, t.TempDir()
	m := New(dirs, nil)
	claim := dirs.Claim("default", "data")
	test.Must(t, errors.Join(os.MkdirAll(claim, 0o700), os.WriteFile(claim+"/file", make([]byte, 8<<10), 0o600)))
	if size, err := m.ClaimSize(t.Context(), claim); err != nil || size.Files != 2 || size.Bytes < 8<<10 {
		t.Errorf("%+v, %v", size, err)
	}
	test.Must(t, errors.Join(os.Mkdir(outside+"/data", 0o700), os.Symlink(outside+"/data", dirs.Claim("default", "link")),
		os.Symlink(outside, filepath.Join(dirs.Claims(), "other"))))
	for _, dir := range []string{dirs.Claim("default", "link"), dirs.Claim("other", "data")} {
		if size, err := m.ClaimSize(t.Context(), dir); err == nil {
			t.Errorf("%s: %+v", dir, size)
		}
	}
	if _, err := m.ClaimSize(t.Context(), dirs.Claim("default", "none")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
