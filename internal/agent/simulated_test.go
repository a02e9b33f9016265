package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/agent/node"
	"podrun.io/podrun/internal/agent/sources"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/network"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/fake"
)

const crashing = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: a, image: "bad:1"}
  - name: b
    image: "good:1"
    readinessProbe: {exec: {command: [x]}, periodSeconds: 10}
`

// simulated returns the options of a podrun that runs in virtual time, on an in-memory runtime with
// its own directories.
func simulated(t *testing.T, rt *fake.Runtime) Options {
	dir := t.TempDir()
	manifests := filepath.Join(dir, "manifests")
	if err := os.Mkdir(manifests, 0o755); err != nil {
		t.Fatal(err)
	}
	return Options{
		Dirs:    layout.Dirs{Root: filepath.Join(dir, "root"), Run: filepath.Join(dir, "run"), Log: filepath.Join(dir, "log")},
		Sources: sources.Options{Manifests: []string{manifests}, FileCheckFrequency: 20 * time.Second}, NodeName: "n",
		Events: "auto", Log: slog.New(slog.DiscardHandler), backend: rt,
		machine: &machine{parallel: 4, Info: node.Info{Boot: "boot-1", Address: network.FixedHostAddress("192.0.2.1"), Resources: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("8Gi"), v1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
		}}},
	}
}

// TestServeInVirtualTime: a whole serve runs for an hour with a pod that crashes again and again,
// and then removes it with its manifest.
func TestServeInVirtualTime(t *testing.T) {
	rt := fake.New("boot-1")
	rt.AddImage("bad:1", fake.Script{Run: time.Second, Exit: 1})
	rt.AddImage("good:1", fake.Script{})
	o := simulated(t, rt)
	manifest := filepath.Join(o.Sources.Manifests[0], "web.yaml")
	if err := os.WriteFile(manifest, []byte(crashing), 0o644); err != nil {
		t.Fatal(err)
	}
	web := pod.Key{Namespace: "default", Name: "web-n"}
	begun := time.Now()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- Serve(ctx, o, false) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		var shown v1.Pod
		if text, err := os.ReadFile(o.Dirs.StatusFiles().Pod(web)); err != nil {
			t.Error(err)
		} else if err := json.Unmarshal(text, &shown); err != nil {
			t.Error(err)
		}
		statuses := append(shown.Status.ContainerStatuses, v1.ContainerStatus{}, v1.ContainerStatus{})
		a, b := statuses[0], statuses[1]
		if a.RestartCount < 14 || a.RestartCount > 18 || a.State.Waiting == nil || b.RestartCount != 0 || !b.Ready {
			t.Errorf("%+v, %+v", a, b)
		}
		if err := os.Remove(manifest); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got, err := rt.Inspect(t.Context(), web); err != nil || !got.Empty() {
			t.Errorf("after its removal: %+v, %v", got, err)
		}
		stop()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Logf("an hour took %s", time.Since(begun))
}

// TestOnceInVirtualTime: once runs a job from a URL to completion, on an in-memory network.
func TestOnceInVirtualTime(t *testing.T) {
	rt := fake.New("boot-1")
	rt.AddImage("job:1", fake.Script{Run: 10 * time.Minute, Exit: 3})
	o := simulated(t, rt)
	o.Sources.Manifests, o.Sources.URL = nil, "http://manifests/job.yaml"
	synctest.Test(t, func(t *testing.T) {
		connections := make(chan net.Conn)
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, job) })}
		go func() { _ = server.Serve(acceptor(connections)) }()
		defer server.Close()
		o.machine.dial = func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			connections <- theirs
			return ours, nil
		}
		begun := time.Now()
		result, err := Once(t.Context(), o, OnceOptions{Remove: true})
		if err != nil || len(result.Pods) != 1 || result.Pods[0].Status.Phase != v1.PodFailed {
			t.Errorf("%+v, %v", result, err)
		}
		if took := time.Since(begun); took < 10*time.Minute || took > 11*time.Minute {
			t.Errorf("it took %s", took)
		}
		if left, err := rt.List(t.Context()); err != nil || len(left) > 0 {
			t.Errorf("%+v, %v", left, err)
		}
	})
}

const job = `
apiVersion: v1
kind: Pod
metadata: {name: job}
spec:
  restartPolicy: Never
  containers:
  - {name: a, image: "job:1"}
`

// acceptor is a listener that accepts the connections that are sent to it.
type acceptor chan net.Conn

// Accept implements net.Listener.
func (l acceptor) Accept() (net.Conn, error) {
	if c, open := <-l; open {
		return c, nil
	}
	return nil, net.ErrClosed
}

// Close implements net.Listener.
func (l acceptor) Close() error { close(l); return nil }

// Addr implements net.Listener.
func (l acceptor) Addr() net.Addr { return &net.UnixAddr{} }
