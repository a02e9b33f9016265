package manifest

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest/podsecurity"
)

// TestErrorsOfAFile: of a file whose pods are refused, each pod shows its own error first, and those of the others as such.
func TestErrorsOfAFile(t *testing.T) {
	t.Parallel()
	policy, err := podsecurity.New("baseline")
	if err != nil {
		t.Fatal(err)
	}
	from := Origin{SourceFile, "/m.yaml"}
	const text = `{"apiVersion": "v1", "kind": "PodList", "items": [
{"metadata": {"name": "a"}, "spec": {"hostPID": true, "containers": [{"name": "c", "image": "i"}]}},
{"metadata": {"name": "b"}, "spec": {"hostIPC": true, "containers": [{"name": "c", "image": "i"}]}}]}`
	_, err = Load([]byte(text), LoadOptions{Origin: from, NodeName: "n", Policy: policy})
	problems := Desired{Problems: Problems(from, true, err)}.PodProblems()
	const (
		a = "/m.yaml:2: items[0].spec: Forbidden: --pod-security baseline does not allow it: host namespaces (hostPID=true)"
		b = "/m.yaml:3: items[1].spec: Forbidden: --pod-security baseline does not allow it: host namespaces (hostIPC=true)"
	)
	const other = "another pod of its file: "
	for name, want := range map[string]string{
		"a-n": a + "\n" + other + b,
		"b-n": b + "\n" + other + a,
		"c-n": other + a + "\n" + other + b,
	} {
		p := &v1.Pod{}
		p.Name, p.Namespace = name, "default"
		p.Annotations = map[string]string{AnnotationSource: from.Source, AnnotationManifest: from.Path}
		if got := problems.Of(p); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
	}
}

// TestPersistentVolumesOfAnybody: with a level, who writes manifests has no directory of the machine as a volume, and no
// volume that a driver of somebody else's can reach.
func TestPersistentVolumesOfAnybody(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: v}\nspec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], "
	const class = "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: v}\nprovisioner: d.example.com\n"
	for _, source := range []string{
		head + "csi: {driver: d.example.com, volumeHandle: a}}", head + "hostPath: {path: /}}", head + "nfs: {server: a, path: /}}", class,
	} {
		o := options("a.yaml")
		loaded, err := Load([]byte(source), o)
		if err != nil || len(loaded.Objects) != 1 || len(loaded.Warnings) != 0 {
			t.Errorf("%s: %+v, %v", source, loaded, err)
		}
		if o.Policy, err = podsecurity.New("baseline", "d.example.com"); err != nil {
			t.Fatal(err)
		}
		loaded, err = Load([]byte(source), o)
		if err != nil || len(loaded.Objects) != 0 || len(loaded.Warnings) != 1 ||
			!strings.Contains(loaded.Warnings[0].Error(), " v is passed over: with --pod-security, pods have no PersistentVolumes") {
			t.Errorf("%s: %+v, %v", source, loaded, err)
		}
	}
}

// TestCSIDriversOfAnybody: with a level, who writes manifests does not say what a driver is for.
func TestCSIDriversOfAnybody(t *testing.T) {
	t.Parallel()
	const text = "apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: d.example.com}\nspec: {fsGroupPolicy: File}\n"
	o := options("a.yaml")
	loaded, err := Load([]byte(text), o)
	if err != nil || len(loaded.Objects) != 1 || len(loaded.Warnings) != 0 {
		t.Errorf("%+v, %v", loaded, err)
	}
	if o.Policy, err = podsecurity.New("baseline", "d.example.com"); err != nil {
		t.Fatal(err)
	}
	loaded, err = Load([]byte(text), o)
	if err != nil || len(loaded.Objects) != 0 || len(loaded.Warnings) != 1 ||
		!strings.Contains(loaded.Warnings[0].Error(), "CSIDriver d.example.com is passed over: with --pod-security, drivers are those of --inline-csi-drivers") {
		t.Errorf("%+v, %v", loaded, err)
	}
}
