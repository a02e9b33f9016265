package minimal

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/support"
	"podrun.io/podrun/internal/pod"
)

func load(t *testing.T, text []byte, noSuffix bool) []*v1.Pod {
	t.Helper()
	loaded, err := manifest.Load(text, manifest.LoadOptions{
		Origin: manifest.Origin{Source: manifest.SourceFile, Path: "/m.yaml"}, NodeName: "n", NoSuffix: noSuffix, Rules: support.Rules{IgnoreNodeName: true},
	})
	if err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return loaded.Pods
}

// TestManifest: what is printed of a pod makes the same pod again, and nothing in it is a default.
func TestManifest(t *testing.T) {
	t.Parallel()
	p := load(t, []byte(`apiVersion: v1
kind: Pod
metadata: {name: web-n, labels: {app: web}, annotations: {mine: kept}}
spec:
  tolerations: [{key: a, operator: Exists}]
  containers:
  - name: app
    image: web:1
    resources: {limits: {memory: 64Mi}}
    readinessProbe: {httpGet: {port: 80}, periodSeconds: 5}
    ports: [{containerPort: 80}]
`), true)[0]
	p.Status.Phase = v1.PodRunning
	p.Annotations[manifest.AnnotationNext] = "2026-01-02T03:04:05Z"
	pod.PinImages(p, map[string]string{"web:1": "sha256:1"})
	if c := p.Spec.Containers[0]; c.Image != "web:1@sha256:1" {
		t.Errorf("it runs %s", c.Image)
	}
	const want = `apiVersion: v1
kind: Pod
metadata:
  annotations:
    mine: kept
  labels:
    app: web
  name: NAME
spec:
  containers:
  - image: web:1
    name: app
    ports:
    - containerPort: 80
    readinessProbe:
      httpGet:
        port: 80
      periodSeconds: 5
    resources:
      limits:
        memory: 64Mi
  tolerations:
  - key: a
    operator: Exists
`
	for noSuffix, name := range map[bool]string{true: "web-n", false: "web"} {
		if got, err := Manifest(p, noSuffix); err != nil || string(got) != strings.Replace(want, "NAME", name, 1) {
			t.Errorf("%v\n%s", err, got)
		}
	}
}

// TestManifestsOfAllKinds: the manifests of the tests of all fields come back.
func TestManifestsOfAllKinds(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../testdata/manifests/valid-*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	count := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range load(t, text, false) {
			count++
			got, err := Manifest(p, false)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			again := load(t, got, false)[0]
			a, b := p.DeepCopy(), again.DeepCopy()
			for _, name := range manifest.OwnAnnotations() {
				delete(a.Annotations, name)
				delete(b.Annotations, name)
			}
			a.UID, b.UID = "", ""
			if !equality.Semantic.DeepEqual(a, b) || a.Name != b.Name {
				t.Errorf("%s: pod %s differs; its manifest is\n%s", file, p.Name, got)
			}
			if !manifest.SameRun(p, again) {
				t.Errorf("%s: pod %s would be replaced by\n%s", file, p.Name, got)
			}
		}
	}
	if count < 20 {
		t.Errorf("only %d pods", count)
	}
}

// TestHugeManifest: the time grows as the manifest does. It would be an hour if it grew as its square.
func TestHugeManifest(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("apiVersion: v1\nkind: Pod\nmetadata:\n  name: huge\n  annotations:\n")
	for i := range 400 {
		fmt.Fprintf(&text, "    a%d: %q\n", i, strings.Repeat("x", 50))
	}
	text.WriteString("spec:\n  containers:\n  - name: c\n    image: c:1\n    env:\n")
	for i := range 1000 {
		fmt.Fprintf(&text, "    - {name: E%d, value: %q}\n", i, strings.Repeat("<&>", 100))
	}
	text.WriteString("  volumes:\n")
	for i := range 600 {
		fmt.Fprintf(&text, "  - {name: v%d, secret: {secretName: s}}\n", i)
	}
	got, err := Manifest(load(t, []byte(text.String()), false)[0], false)
	if err != nil || strings.Count(string(got), "\n") != 400+2*1000+3*600+12-1 || strings.Contains(string(got), "defaultMode") {
		t.Errorf("%v, %d lines: %.500s", err, strings.Count(string(got), "\n"), got)
	}
}
