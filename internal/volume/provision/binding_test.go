package provision

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/test"
)

// TestContested: a claim keeps the PersistentVolume that it has used when another claim names it too, until its user gives
// it up.
func TestContested(t *testing.T) {
	dir := t.TempDir()
	p := &Provisioner{Dirs: layout.Dirs{Root: filepath.Join(dir, "root"), Run: filepath.Join(dir, "run")}}
	pv := &v1.PersistentVolume{}
	pv.Name, pv.Spec.HostPath = "photos", &v1.HostPathVolumeSource{Path: "/photos"}
	all := pod.Objects{
		Volumes: map[string]*v1.PersistentVolume{"photos": pv}, Claims: map[pod.Key]*v1.PersistentVolumeClaim{},
	}
	later := pod.Key{Namespace: "ns", Name: "a"} // before the other one by its name
	bound := func(key pod.Key) (*v1.PersistentVolume, error) {
		in := pod.Inside{Pod: &v1.Pod{}, Objects: all}
		in.Pod.Namespace = key.Namespace
		volume := &v1.Volume{}
		volume.PersistentVolumeClaim = &v1.PersistentVolumeClaimVolumeSource{ClaimName: key.Name}
		return p.Bound(t.Context(), in, volume, true)
	}
	naming := &v1.PersistentVolumeClaim{Spec: v1.PersistentVolumeClaimSpec{VolumeName: "photos"}}
	all.Claims[claim] = naming
	if v, err := bound(claim); v != pv || err != nil {
		t.Fatal(v, err)
	}
	all.Claims[later] = naming
	if v, err := bound(claim); v != pv || err != nil {
		t.Errorf("the claim that has it: %v, %v", v, err)
	}
	if v, err := bound(later); err == nil || !strings.Contains(err.Error(), "is the claim ns/data's, which has used it") {
		t.Errorf("the later one: %v, %v", v, err)
	}
	_, _, err := Unbind(p.Dirs, claim, free)
	test.Must(t, err)
	for _, key := range []pod.Key{claim, later} {
		if v, err := bound(key); err == nil || !strings.Contains(err.Error(), "and it can have one") {
			t.Errorf("nobody has used it: %s: %v, %v", key, v, err)
		}
	}
	delete(all.Claims, claim)
	if v, err := bound(later); v != pv || err != nil {
		t.Errorf("alone: %v, %v", v, err)
	}
}

// TestRemovalIsSynced: a removal that finds nothing any more is synced as well, because the one before may have failed
// to.
func TestRemovalIsSynced(t *testing.T) {
	dirs := layout.Dirs{Root: t.TempDir()}
	for what, remove := range map[string]func() error{
		"Remove": func() error { _, _, err := Remove(t.Context(), dirs, claim, free); return err },
		"Unbind": func() error { _, _, err := Unbind(dirs, claim, free); return err },
	} {
		if err := test.WithoutSync(t, remove); !errors.Is(err, unix.EIO) {
			t.Errorf("%s on a disk that refuses each sync: %v", what, err)
		}
		if err := remove(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
