package sources

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
)

const webPod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, image: i}]}\n"

// first returns the first complete desired set of the options' sources, if there is one before the
// timeout.
func first(t *testing.T, o Opener, running map[pod.Key]manifest.Origin, timeout time.Duration) (manifest.Desired, bool) {
	t.Helper()
	o.NodeName, o.Log, o.Running = "n", slog.New(slog.DiscardHandler), running
	all, err := o.Open()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	out, done := make(chan manifest.Desired), make(chan bool)
	go func() {
		defer close(done)
		o.Run(ctx, all, out, func(who string, err error) { t.Errorf("%s: %v", who, err) })
	}()
	defer func() { cancel(); <-done }()
	for {
		select {
		case d := <-out:
			if d.Complete {
				return d, true
			}
		case <-ctx.Done():
			return manifest.Desired{}, false
		}
	}
}

// TestDefaultDirectoryBesideAURL: with a URL the default directory may be missing, unless pods came
// from it.
func TestDefaultDirectoryBesideAURL(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(webPod)) }))
	defer server.Close()
	dir := filepath.Join(t.TempDir(), "pods")
	o := Opener{Options: Options{Manifests: []string{dir}, Default: true, URL: server.URL}}
	if d, ok := first(t, o, nil, time.Minute); !ok || len(d.Pods) != 1 || len(d.Problems) != 0 {
		t.Errorf("without the directory: %v %+v", ok, d)
	}
	named := o
	named.Default = false
	running := map[pod.Key]manifest.Origin{{Namespace: "default", Name: "db-n"}: {Source: manifest.SourceFile, Path: filepath.Join(dir, "db.yaml")}}
	for name, ok := range map[string]func() bool{
		"named":             func() bool { _, ok := first(t, named, nil, 300*time.Millisecond); return ok },
		"a pod is of there": func() bool { _, ok := first(t, o, running, 300*time.Millisecond); return ok },
	} {
		if ok() {
			t.Errorf("%s: complete without the directory", name)
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if d, ok := first(t, named, running, time.Minute); !ok || len(d.Pods) != 1 {
		t.Errorf("with the directory: %v %+v", ok, d)
	}
}

// TestErrorsOfOnce: an error that only a run has is not one of the manifests, which validate would find.
func TestErrorsOfOnce(t *testing.T) {
	t.Parallel()
	needs := strings.Replace(webPod, "image: i", "image: i, envFrom: [{configMapRef: {name: m}}]", 1)
	for name, x := range map[string]struct {
		text, want string
		valid      bool
	}{
		"no ConfigMap": {needs, `needs the ConfigMap "m", which no manifest has`, true},
		"no pod before it": {
			strings.Replace(webPod, "name: web", "name: web, annotations: {podrun.io/after: db}", 1), "no manifest of this run makes pod default/db", true},
		"no pod":       {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n", "no pod in", true},
		"invalid":      {strings.Replace(webPod, "image: i", "image: 1", 1), "image", false},
		"invalid, too": {needs + "---\n" + strings.Replace(webPod, "containers", "container", 1), "container", false},
	} {
		o := Opener{Options: Options{Manifests: []string{manifest.Stdin}}, Stdin: strings.NewReader(x.text),
			NodeName: "n", Log: slog.New(slog.DiscardHandler)}
		_, err := o.ReadOnce(t.Context())
		var is *ManifestError
		if !errors.As(err, &is) || is.Valid != x.valid || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, %+v", name, err, is)
		}
	}
}
