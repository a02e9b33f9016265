package volume

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/volume/claims"
)

// TestPersistentVolumes: a claim is the volume whose document names it, or that its own one names, and else a directory.
func TestPersistentVolumes(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	pv := func(source v1.PersistentVolumeSource) *v1.PersistentVolume {
		v := &v1.PersistentVolume{}
		v.Name = "pv"
		v.Spec.ClaimRef, v.Spec.PersistentVolumeSource = &v1.ObjectReference{Namespace: "default", Name: "data"}, source
		return v
	}
	driver := v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}}
	secret := v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{
		Driver: "d", VolumeHandle: "h", NodeStageSecretRef: &v1.SecretReference{Namespace: "other", Name: "login"},
	}}
	device := pv(driver)
	device.Spec.VolumeMode = new(v1.PersistentVolumeBlock)
	host := v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: dir}}
	nowhere := v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: dir + "/none", Type: new(v1.HostPathDirectory)}}
	named := &v1.PersistentVolumeClaim{Spec: v1.PersistentVolumeClaimSpec{VolumeName: "pw"}}
	inline := v1.Volume{Name: "pv", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "d"}}}
	retained := `{"driver":"d","id":"h","target":"/nowhere","uid":"u1","volume":"v","persistentVolume":"pv","claim":"data","published":true}`
	for name, c := range map[string]struct {
		volume     *v1.PersistentVolume
		claim      *v1.PersistentVolumeClaim
		more       []v1.Volume
		record     string
		path, want string
		asDevice   bool
	}{
		"none":         {path: "claims/default/data"},
		"hostPath":     {volume: pv(host), path: dir},
		"no directory": {volume: pv(nowhere), want: "hostPath type check failed"},
		"csi":          {volume: pv(driver), want: "podrun runs without --plugins"},
		"no Secret":    {volume: pv(secret), want: `secret "login" not found`},
		"no document":  {volume: pv(host), claim: named, want: `names the PersistentVolume "pw", which no manifest has`},
		"one name":     {volume: pv(driver), more: []v1.Volume{inline}, want: "the pod has an inline volume with the name of the PersistentVolume"},
		"retained":     {record: retained, want: `the pod has the PersistentVolume "pv", which is not mounted any more`},
		"device":       {volume: device, want: "it has volumeMode Block, but is specified in volumeMounts"},
		"as device":    {volume: device, want: "podrun runs without --plugins", asDevice: true},
		"no device":    {volume: pv(driver), want: "it has volumeMode Filesystem, but is specified in volumeDevices", asDevice: true},
		"directory":    {want: "it has volumeMode Filesystem, but is specified in volumeDevices", asDevice: true},
		"changed":      {record: retained, volume: pv(host), path: dir},
		"unnamed":      {record: retained, claim: named, want: `which is not mounted any more; the PersistentVolumeClaim "data" names`},
	} {
		f := newFixture(t)
		objects := pod.Objects{Volumes: map[string]*v1.PersistentVolume{}, Claims: map[pod.Key]*v1.PersistentVolumeClaim{}}
		if c.volume != nil {
			objects.Volumes["pv"] = c.volume
		}
		if c.claim != nil {
			objects.Claims[pod.Key{Namespace: "default", Name: "data"}] = c.claim
		}
		if c.record != "" {
			write(t, filepath.Join(layout.CSIVolumes(f.dirs()), "u1_0717031b935f131e7a4974ff41f4511bbd630b61dd1a813d47a214106b9ec14b.json"), c.record)
		}
		container := mounting(mountV)
		if c.asDevice {
			container = &v1.Container{VolumeDevices: []v1.VolumeDevice{{Name: "v", DevicePath: "/dev/v"}}}
		}
		got, err := f.Volumes.Setup(t.Context(), pod.Inside{
			Pod: podWith(append(c.more, claimed("data"))...), Container: container, Objects: objects,
		})
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", name, err, c.want)
			}
			if _, err := os.Stat(f.root + "/claims"); err == nil {
				t.Errorf("%s: there is a directory", name)
			}
			continue
		}
		is := func(m pod.Mount) bool {
			return strings.HasSuffix(m.HostPath, c.path) ||
				m.ContainerPath == "/v" && strings.HasPrefix(c.path, "claims/") && isBound(t, m.HostPath, filepath.Join(f.root, c.path))
		}
		if err != nil || !slices.ContainsFunc(got, is) {
			t.Errorf("%s: %+v, %v, want %s", name, got, err, c.path)
		}
	}
}

// TestLostVolume: the document of a claim's PersistentVolume is gone, or cannot be read. The claim does not become a
// directory: its pods would write to the wrong one. Another document, or the user's command, ends that.
func TestLostVolume(t *testing.T) {
	needRoot(t)
	host, other := t.TempDir(), t.TempDir()
	f := newFixture(t)
	volumeAt := func(name, path string) map[string]*v1.PersistentVolume {
		v := &v1.PersistentVolume{}
		v.Name = name
		v.Spec.ClaimRef = &v1.ObjectReference{Namespace: "default", Name: "data"}
		v.Spec.HostPath = &v1.HostPathVolumeSource{Path: path}
		return map[string]*v1.PersistentVolume{name: v}
	}
	setup := func(volumes map[string]*v1.PersistentVolume) (string, error) {
		got, err := f.Volumes.Setup(t.Context(), pod.Inside{
			Pod: podWith(claimed("data")), Container: mounting(mountV), Objects: pod.Objects{Volumes: volumes},
		})
		if err != nil {
			return "", err
		}
		return got[0].HostPath, nil
	}
	if path, err := setup(volumeAt("pv", host)); err != nil || path != host {
		t.Fatal(path, err)
	}
	for range 2 {
		_, err := setup(nil)
		if err == nil || !strings.Contains(err.Error(), `the claim default/data has the PersistentVolume "pv", which no manifest has`) {
			t.Error(err)
		}
	}
	if path, err := setup(volumeAt("other", other)); err != nil || path != other {
		t.Error(path, err)
	}
	all, err := claims.List(f.dirs(), nil)
	if err != nil || len(all) != 1 || all[0].Volume != "other" || all[0].Path != other || all[0].Status != claims.Bound {
		t.Errorf("%+v, %v", all, err)
	}
	record := filepath.Join(layout.ClaimBindings(f.dirs()), "*.json")
	files, err := filepath.Glob(record)
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	write(t, files[0], "{")
	if _, err := setup(nil); err == nil || !strings.Contains(err.Error(), "reading the record") {
		t.Error(err)
	}
	write(t, files[0], string(text))
	uses := f.root + "/pods/u1/checkpoint.json"
	write(t, uses, `{"pod":{"metadata":{"name":"a","namespace":"default"},"spec":{"containers":null,"volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"data"}}]}}}`)
	if _, err := claims.Remove(t.Context(), f.dirs(), pod.Key{Namespace: "default", Name: "data"}, nil); !errors.Is(err, claims.ErrInUse) {
		t.Error(err)
	}
	if err := os.Remove(uses); err != nil {
		t.Fatal(err)
	}
	kept, err := claims.Remove(t.Context(), f.dirs(), pod.Key{Namespace: "default", Name: "data"}, nil)
	if _, gone := os.Stat(host); err != nil || gone != nil || !strings.Contains(kept, `the PersistentVolume "other" keeps its data`) {
		t.Error(kept, err, gone)
	}
	if path, err := setup(nil); err != nil || !isBound(t, path, f.root+"/claims/default/data") {
		t.Error(path, err)
	}
}
