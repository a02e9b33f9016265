package volume

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// copies are items that name one key n times.
func copies(key string, n int) (items []v1.KeyToPath) {
	for i := range n {
		items = append(items, v1.KeyToPath{Key: key, Path: fmt.Sprint("f", i)})
	}
	return items
}

func projecting(sources ...v1.VolumeProjection) v1.Volume {
	return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: sources}}}
}

func secretVolume(items ...v1.KeyToPath) v1.Volume {
	return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "m", Items: items}}}
}

// TestFilledBounds: a small manifest cannot make podrun write any amount of memory or disk, which
// no limit of the pod applies to. What is too much is refused before anything is written.
func TestFilledBounds(t *testing.T) {
	needRoot(t)
	large := strings.Repeat("x", 1<<20)
	o := objects(map[string]string{"large": large, "small": ""}, map[string][]byte{"large": []byte(large), "small": nil})
	items := func(items []v1.KeyToPath) v1.Volume {
		return configMap(func(s *v1.ConfigMapVolumeSource) { s.Items = items })
	}
	var whole, single []v1.VolumeProjection
	for i := range 30 {
		whole = append(whole, v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: ref("m")}})
		single = append(single, v1.VolumeProjection{Secret: &v1.SecretProjection{
			LocalObjectReference: ref("m"), Items: []v1.KeyToPath{{Key: "large", Path: fmt.Sprint(i)}}}})
	}
	downward := &v1.DownwardAPIVolumeSource{}
	for i := range 100 {
		downward.Items = append(downward.Items, v1.DownwardAPIVolumeFile{
			Path: fmt.Sprint(i), FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.annotations"}})
	}
	named := func(v v1.Volume, name string) v1.Volume { v.Name = name; return v }
	fifteen := secretVolume(copies("large", 15)...)
	for _, c := range []struct {
		name    string
		volumes []v1.Volume
		want    string // in the error
	}{
		{"one value of a Secret many times", []v1.Volume{secretVolume(copies("large", 1000)...)}, `volume "v": its files take more than 16 MiB`},
		{"of a ConfigMap", []v1.Volume{items(copies("large", 1000))}, "16 MiB"},
		{"many sources of one file each", []v1.Volume{projecting(single...)}, "16 MiB"},
		{"a source of all files many times", []v1.Volume{projecting(whole...)}, "16 MiB"},
		{"empty files", []v1.Volume{secretVolume(copies("small", 5000)...)}, "16 MiB"},
		{"directories", []v1.Volume{items([]v1.KeyToPath{{Key: "small", Path: strings.Repeat("d/", 5000) + "f"}})}, "16 MiB"},
		{"fields of the pod", []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{DownwardAPI: downward}}}, "16 MiB"},
		{"a volume that no container mounts", []v1.Volume{fifteen, named(secretVolume(copies("large", 17)...), "w")}, `volume "w": its files take more than 16 MiB`},
		{"many volumes", []v1.Volume{fifteen, named(fifteen, "b"), named(fifteen, "c"), named(fifteen, "d"), named(fifteen, "e")},
			`volume "e": with it the pod's ConfigMap, Secret, downwardAPI and projected volumes take more than 64 MiB`},
		{"the most", []v1.Volume{fifteen, named(fifteen, "b"), named(fifteen, "c"), named(fifteen, "d")}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, p := newFixture(t), podWith(c.volumes...)
			p.Annotations = map[string]string{"a": large[:200<<10]}
			dir, got := f.fill(t, pod.Inside{Pod: p, Objects: o})
			if c.want != "" {
				if !strings.HasPrefix(got, "error: MountVolume.SetUp failed for volume ") || !strings.Contains(got, c.want) {
					t.Errorf("%.200s", got)
				}
				if _, err := os.Lstat(f.dirs().Revision(p.UID).Volume("", "")); !os.IsNotExist(err) {
					t.Error("something was created")
				}
				return
			}
			var fs unix.Statfs_t
			if err := unix.Statfs(dir, &fs); err != nil || int64(fs.Blocks)*fs.Bsize != 4*pod.MaxFilled {
				t.Errorf("%d bytes of memory, %v; %.200s", int64(fs.Blocks)*fs.Bsize, err, got)
			}
		})
	}
}

// TestFilledGrows: neither an edit nor an object that is away leads past the bounds, and a volume
// that would exceed them keeps its content.
func TestFilledGrows(t *testing.T) {
	value := func(n int) map[string][]byte { return map[string][]byte{"a": []byte(strings.Repeat("x", n))} }
	key := func(name string) pod.Key { return pod.Key{Namespace: "default", Name: name} }
	p := podWith()
	in := pod.Inside{Pod: p, Objects: pod.Objects{ConfigMaps: map[pod.Key]*v1.ConfigMap{}}}
	for i := range 8 {
		name := fmt.Sprint("v", i)
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
			LocalObjectReference: ref(name), Items: copies("a", 15)}}})
	}
	f := newFixture(t)
	setup := func(name string) error {
		in.Container = mounting(v1.VolumeMount{Name: name, MountPath: "/v"})
		_, err := f.Volumes.Setup(t.Context(), in)
		return err
	}
	for i := range 4 {
		name := fmt.Sprint("v", i)
		in.Objects.ConfigMaps[key(name)] = &v1.ConfigMap{BinaryData: value(1 << 20)}
		if err := setup(name); err != nil {
			t.Fatal(err)
		}
		delete(in.Objects.ConfigMaps, key(name))
	}
	in.Objects.ConfigMaps[key("v4")] = &v1.ConfigMap{BinaryData: value(1 << 20)}
	if err := setup("v4"); err == nil || !strings.Contains(err.Error(), "more than 64 MiB") {
		t.Errorf("four volumes that keep their content, and a fifth: %v", err)
	}
	in.Objects.ConfigMaps[key("v4")] = &v1.ConfigMap{BinaryData: value(10)}
	if err := setup("v4"); err != nil {
		t.Fatal(err)
	}
	in.Objects.ConfigMaps[key("v4")] = &v1.ConfigMap{BinaryData: value(2 << 20)}
	if err := f.Refresh(t.Context(), in); err == nil || !strings.Contains(err.Error(), `volume "v4": its files take more than 16 MiB`) {
		t.Errorf("an edit: %v", err)
	}
	at := filepath.Join(f.dirs().Revision(p.UID).Volume("kubernetes.io~configmap", "v4"), "f0")
	if b, err := os.ReadFile(at); err != nil || len(b) != 10 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// TestWithheldHasASize: the memory for variables with Secrets is limited, too.
func TestWithheldHasASize(t *testing.T) {
	needRoot(t)
	f := newFixture(t)
	in := pod.Inside{Pod: podWith(), Container: mounting(), Env: []pod.Variable{{Name: "A", Value: "x", Secret: true}}}
	_, err := f.Volumes.Setup(t.Context(), in)
	t.Cleanup(func() {
		if err := f.Teardown(context.Background(), in.Pod.UID); err != nil {
			t.Error(err)
		}
	})
	var fs unix.Statfs_t
	if err == nil {
		err = unix.Statfs(f.dirs().Revision("u1").Withheld(), &fs)
	}
	if err != nil || int64(fs.Blocks)*fs.Bsize != 64<<20 {
		t.Errorf("%d bytes, %v", int64(fs.Blocks)*fs.Bsize, err)
	}
}
