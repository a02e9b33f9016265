package source

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"podrun.io/podrun/internal/manifest"
)

func TestPruneCache(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := PruneCache(filepath.Join(dir, "absent"), "http://pods.example/node1.yaml"); err != nil {
		t.Error(err)
	}
	for _, url := range []string{"http://pods.example/node1.yaml", "http://old.example/"} {
		if err := (cache{dir: dir, key: manifest.Digest([]byte(url))}).write(entry{Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, ".abc.json.123"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := PruneCache(dir, "http://pods.example/node1.yaml"); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != manifest.Digest([]byte("http://pods.example/node1.yaml"))+".json" {
		t.Error(entries, err)
	}
}

func TestNoSecretInTheCache(t *testing.T) {
	t.Parallel()
	configMap := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {k: a}\n"
	secret := "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {p: w0rd}\n"
	web := "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - name: main\n    image: i\n" +
		"    env: [{name: A, valueFrom: {configMapKeyRef: {name: m, key: k}}}]\n    envFrom: [{secretRef: {name: s}}]\n"
	for name, body := range map[string]string{
		"documents": configMap + "---\n" + secret + "---\n" + web,
		"a List": "apiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(strings.TrimSpace(secret), "\n", "\n  ") + "\n" +
			"- " + strings.ReplaceAll(strings.TrimSpace(web), "\n", "\n  ") + "\n",
		"a Secret alone": secret,
	} {
		o := Options{Identity: "http://h/", Name: "http://h/", NodeName: "node1", Log: slog.New(slog.DiscardHandler)}
		s := NewLastGood(o)
		s.accept([]byte(body), Validators{ETag: "x"}, time.Now())
		if s.err != nil {
			t.Fatalf("%s: %v", name, s.err)
		}
		k := entryOf(s.good)
		if strings.Contains(string(k.Body), "w0rd") || k.Validators != (Validators{}) {
			t.Errorf("%s: kept %s, %+v", name, k.Body, k.Validators)
		}
		again := NewLastGood(o)
		again.accept(k.Body, Validators{}, time.Now())
		if again.err != nil || len(again.good.Pods) != len(s.good.Pods) {
			t.Fatalf("%s: %v", name, again.err)
		}
		for i, p := range again.good.Pods {
			if p.UID != s.good.Pods[i].UID || !manifest.SameRun(p, s.good.Pods[i]) {
				t.Errorf("%s: another pod comes out of the cache", name)
			}
		}
	}
}

func TestBrief(t *testing.T) {
	t.Parallel()
	var all manifest.InvalidError
	for i := range 5 {
		all.Errors = append(all.Errors, manifest.FieldError{File: "a", Line: i, Message: "x"})
	}
	if got := Brief(&all); got != "a: x; a:1: x; a:2: x; and 2 more" {
		t.Error(got)
	}
}
