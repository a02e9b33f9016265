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

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/mux"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/test"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/jobs"
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

// TestHangingDirectory: reading a directory on a file system that does not answer delays neither the pods of other
// sources for long, nor podrun's end.
func TestHangingDirectory(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, "pods")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "web.yaml"), []byte(webPod), 0o600)); err != nil {
		t.Fatal(err)
	}
	hangs := filepath.Join(root, "hangs")
	test.HangingMount(t, hangs)
	o := Opener{Options: Options{Manifests: []string{hangs, dir}}, NodeName: "n", Log: slog.New(slog.DiscardHandler)}
	all, err := o.Open()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, done := make(chan manifest.Desired), make(chan bool)
	go func() {
		defer close(done)
		o.Run(ctx, all, out, func(who string, err error) { t.Errorf("%s: %v", who, err) })
	}()
	for {
		select {
		case d := <-out:
			if len(d.Pods) == 0 {
				continue
			}
			if d.Complete || len(d.Problems) != 1 || !errors.Is(d.Problems[0].Err, mux.ErrUnanswered) {
				t.Errorf("complete: %v; problems: %v", d.Complete, d.Problems)
			}
		case <-ctx.Done():
			t.Fatal("no pod of the other directory")
		}
		break
	}
	cancel()
	<-done
}

// recorded is a record with these histories.
type recorded struct{ all workload.Recorded }

func (r recorded) Recorded() workload.Recorded                { return r.all }
func (recorded) Changed() <-chan struct{}                     { return nil }
func (recorded) Save(workload.Histories) map[workload.ID]bool { return nil }
func (recorded) Sent(map[pod.Key]*v1.Pod)                     {}

// TestFinishedJobsOfADirectoryThatIsNotMounted: a Job that has finished has no pod any more. Its manifest is in a
// directory that is mounted late: the empty one does not make podrun forget that the Job has run.
func TestFinishedJobsOfADirectoryThatIsNotMounted(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir, cache := filepath.Join(root, "pods"), filepath.Join(root, "cache")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "web.yaml"), []byte(webPod), 0o600)); err != nil {
		t.Fatal(err)
	}
	o := Opener{Options: Options{Manifests: []string{dir}}, CacheDir: cache, Lasting: true}
	if d, ok := first(t, o, nil, time.Minute); !ok || len(d.Pods) != 1 {
		t.Fatalf("with the directory: %v %+v", ok, d)
	}
	if err := errors.Join(os.Rename(dir, dir+".real"), os.Mkdir(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	o.Record = recorded{workload.Recorded{Histories: workload.Histories{
		Jobs: map[workload.ID]*jobs.History{{Kind: workload.Job, Key: pod.Key{Name: "migrate"}}: {}},
	}}}
	if d, ok := first(t, o, nil, time.Second); ok {
		t.Errorf("a Job is recorded: complete without its directory: %+v", d)
	}
	if err := errors.Join(os.Remove(dir), os.Rename(dir+".real", dir)); err != nil {
		t.Fatal(err)
	}
	if d, ok := first(t, o, nil, time.Minute); !ok || len(d.Pods) != 1 {
		t.Errorf("the directory is there again: %v %+v", ok, d)
	}
	// Its manifests are removed, and it is made again: that it is empty is no news.
	if err := os.Remove(filepath.Join(dir, "web.yaml")); err != nil {
		t.Fatal(err)
	}
	if d, ok := first(t, o, nil, time.Minute); !ok || len(d.Pods) != 0 {
		t.Errorf("emptied: %v %+v", ok, d)
	}
	if err := errors.Join(os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	if d, ok := first(t, o, nil, time.Minute); !ok || len(d.Pods) != 0 {
		t.Errorf("empty, and another one: %v %+v", ok, d)
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
