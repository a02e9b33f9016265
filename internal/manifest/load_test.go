package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
)

const fixtures = "../../testdata/manifests"

func load(t testing.TB, path string) (Loaded, error) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return Load(data, options(path))
}

func options(path string) LoadOptions {
	return LoadOptions{Origin: Origin{Source: SourceFile, Path: path}, NodeName: "node1"}
}

func podText(name, image string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {containers: [{name: c, image: %q}]}\n", name, image)
}

func glob(t testing.TB, pattern string, least int) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(fixtures, pattern))
	if err != nil || len(paths) < least {
		t.Fatalf("%d fixtures %s, %v", len(paths), pattern, err)
	}
	return paths
}

func TestValidManifests(t *testing.T) {
	t.Parallel()
	for _, path := range glob(t, "valid-*", 15) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			loaded, err := load(t, path)
			if err != nil {
				t.Fatal(err)
			}
			all := Merge(Sources{Order: []string{"/m"}, Last: map[string]Snapshot{"/m": {Pods: loaded.Pods, Workloads: loaded.Workloads}}})
			for _, w := range all.Workloads {
				if w.Kind == workload.CronJob { // whose pods are not there yet
					all.Pods[pod.KeyOf(w.Template)] = w.Template
				}
			}
			if len(all.Pods) == 0 || len(all.Pods) < len(loaded.Pods) {
				t.Error("no pods, or not all")
			}
			for _, p := range all.Pods {
				checkLoaded(t, p)
			}
		})
	}
}

// checkLoaded checks what holds for every loaded pod.
func checkLoaded(t *testing.T, p *v1.Pod) {
	t.Helper()
	if !strings.HasSuffix(p.Name, "-node1") || p.Namespace == "" || p.UID == "" || p.Spec.NodeName != "node1" {
		t.Errorf("identity %s/%s %s on %s", p.Namespace, p.Name, p.UID, p.Spec.NodeName)
	}
	if p.Annotations[AnnotationHash] != string(p.UID) {
		t.Errorf("uid %s, but log collectors are told %s", p.UID, p.Annotations[AnnotationHash])
	}
	if len(p.Annotations[AnnotationManifestHash]) != 32 || OriginOf(p).Source != SourceFile || OriginOf(p).Path == "" {
		t.Errorf("annotations %v", p.Annotations)
	}
	if !SameRun(p, p.DeepCopy()) {
		t.Error("not the same as itself")
	}
}

// An invalid manifest's first line tells an error that must be among those reported, without the file's
// name if it begins with a colon.
func TestInvalidManifests(t *testing.T) {
	t.Parallel()
	for _, path := range glob(t, "invalid-*", 30) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			first, _, _ := bytes.Cut(data, []byte("\n"))
			want, ok := strings.CutPrefix(string(bytes.TrimPrefix(first, []byte("\ufeff"))), "# want: ")
			if !ok {
				t.Fatalf("first line is %q", first)
			}
			_, err = Load(data, options(path))
			var invalid *InvalidError
			if !errors.As(err, &invalid) {
				t.Fatalf("error is %v", err)
			}
			if strings.HasPrefix(want, ":") {
				want = path + want
			}
			if !strings.Contains(err.Error()+"\n", want) {
				t.Errorf("got\n%v\nwant\n%s", err, want)
			}
			if text, err := json.Marshal(invalid.Errors); err != nil || !json.Valid(text) {
				t.Errorf("as JSON %s, %v", text, err)
			}
		})
	}
}

// TestOneLine: an error is one line, whatever names a manifest has.
func TestOneLine(t *testing.T) {
	t.Parallel()
	_, err := Load([]byte("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n\"x\\n[+]b.yaml: ok\": 2\n"), options("/a.yaml"))
	if err == nil || err.Error() != `/a.yaml:4: x\n[+]b.yaml: ok: unknown field` {
		t.Errorf("got %v", err)
	}
}
