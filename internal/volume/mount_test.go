package volume

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// TestMountOfAllVolumes: what any container of the pod uses is made ready, before one of them runs.
func TestMountOfAllVolumes(t *testing.T) {
	f := newFixture(t)
	missing := filepath.Join(t.TempDir(), "missing")
	p := podWith(emptyDir("own"), hostPath(missing, v1.HostPathDirectory), emptyDir("unused"),
		v1.Volume{Name: "image", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "img:1"}}})
	p.Spec.InitContainers = []v1.Container{*mounting(v1.VolumeMount{Name: "own", MountPath: "/own"})}
	p.Spec.Containers = []v1.Container{*mounting(mountV, v1.VolumeMount{Name: "image", MountPath: "/image"})}
	err := f.Mount(t.Context(), pod.Inside{Pod: p})
	var why *runtime.ReasonError
	if !errors.As(err, &why) || why.Reason != pod.ReasonFailedMount || !strings.Contains(err.Error(), `volume "v"`) {
		t.Errorf("with a volume that is not there: %v", err)
	}
	if err := os.Mkdir(missing, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := f.Mount(t.Context(), pod.Inside{Pod: p}); err != nil {
			t.Errorf("with all volumes: %v", err)
		}
	}
	for name, want := range map[string]bool{"own": true, "unused": false} {
		path := f.dirs().Revision(p.UID).Volume(layout.KindEmptyDir, name)
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("volume %s: %v", name, err)
		}
	}
	p.Spec.Volumes = nil
	if err := f.Mount(t.Context(), pod.Inside{Pod: p}); err == nil {
		t.Error("mounted a volume that the pod does not have")
	}
}
