package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/agent/sources"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/fake"
	"podrun.io/podrun/internal/sys"
)

// serving is a whole serve on the fake runtime.
type serving struct {
	t         *testing.T
	runtime   *fake.Runtime
	manifests string
	o         Options
	stopPods  bool
	client    *http.Client
	stop      context.CancelFunc
	done      chan error
}

const webManifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - {name: c, image: busybox}\n"

func newServing(t *testing.T) *serving {
	boot, err := sys.BootID()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := &serving{t: t, runtime: fake.New(boot), manifests: filepath.Join(dir, "manifests"), done: make(chan error, 1)}
	if err := os.Mkdir(s.manifests, 0o755); err != nil {
		t.Fatal(err)
	}
	s.runtime.AddImage("busybox", fake.Script{})
	s.runtime.AddImage("docker.io/library/busybox:latest", fake.Script{})
	s.o = Options{
		Dirs:    layout.Dirs{Root: filepath.Join(dir, "root"), Run: filepath.Join(dir, "run"), Log: filepath.Join(dir, "log")},
		Sources: sources.Options{Manifests: []string{s.manifests}, FileCheckFrequency: time.Second}, NodeName: "n",
		RelistPeriod: 50 * time.Millisecond, Events: "auto", Log: slog.New(slog.DiscardHandler), backend: s.runtime,
	}
	s.client = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", s.o.Dirs.Socket())
		},
	}}
	return s
}

func (s *serving) start() {
	var ctx context.Context
	ctx, s.stop = context.WithCancel(s.t.Context())
	go func() { s.done <- Serve(ctx, s.o, s.stopPods) }()
	s.t.Cleanup(s.stop)
}

func (s *serving) write(name, text string) {
	if err := os.WriteFile(filepath.Join(s.manifests, name), []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

func (s *serving) get(path string) (int, string, error) {
	r, err := s.client.Get("http://podrun" + path)
	if err != nil {
		return 0, "", err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	return r.StatusCode, string(body), err
}

// until requests the path repeatedly until the response is as expected.
func (s *serving) until(path string, status int, parts ...string) string {
	s.t.Helper()
	var last string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		got, body, err := s.get(path)
		last = fmt.Sprintf("%d %s %v", got, body, err)
		good := err == nil && got == status
		for _, part := range parts {
			good = good && strings.Contains(body, part)
		}
		if good {
			return body
		}
	}
	s.t.Fatalf("%s: want %d with %q, last was %s", path, status, parts, last)
	return ""
}

// TestServeBeginsAnew: when the run directory is removed serve starts from the beginning, with
// statuses, socket and lock, and leaves the pods running.
func TestServeBeginsAnew(t *testing.T) {
	s := newServing(t)
	s.stopPods = true
	s.write("web.yaml", webManifest)
	s.start()
	s.until("/pods", http.StatusOK, `"web-n"`, `"running"`)
	for os.RemoveAll(s.o.Dirs.Run) != nil { // something was just being written there
		time.Sleep(time.Millisecond)
	}
	s.until("/pods", http.StatusOK, `"web-n"`, `"running"`)
	if _, err := os.Stat(s.o.Dirs.StatusFiles().Pod(pod.Key{Namespace: "default", Name: "web-n"})); err != nil {
		t.Errorf("no status: %v", err)
	}
	if _, err := owner.LockRun(s.o.Dirs, owner.Serve); !errors.Is(err, owner.ErrServing) {
		t.Errorf("the lock: %v", err)
	}
	starts, stops := 0, 0
	for _, call := range s.runtime.Calls() {
		if strings.HasPrefix(call, "StartContainer") {
			starts++
		}
		if strings.HasPrefix(call, "SignalContainer") {
			stops++
		}
	}
	if starts != 1 || stops != 0 {
		t.Errorf("%d starts, %d signals", starts, stops)
	}
	s.stop()
	if err := <-s.done; err != nil {
		t.Error(err)
	}
	if all, err := s.runtime.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("left: %+v, %v", all, err)
	}
}

func TestServeTellsHowItIs(t *testing.T) {
	s := newServing(t)
	s.o.Config = map[string]string{"kubeletconfig": "as serve was started"}
	s.write("web.yaml", webManifest)
	s.start()
	s.until("/readyz", 200, "ok")
	body := s.until("/pods", 200, `"phase":"Running"`)
	var list v1.PodList
	if err := json.Unmarshal([]byte(body), &list); err != nil || len(list.Items) != 1 || list.Items[0].Name != "web-n" {
		t.Fatalf("got %s, %v", body, err)
	}
	s.until("/metrics", 200, "\nkubelet_running_pods 1\n", "\nkubelet_desired_pods{static=\"true\"} 1\n",
		"\nkubelet_running_containers{container_state=\"running\"} 1\n", "\npodrun_evented_pleg_connected 1\n",
		"\npodrun_pleg_events_total{type=\"started\"} 1\n")

	s.until("/runningpods/", 200, `"items":[{"metadata":{"name":"web-n","namespace":"default","uid":"`+string(list.Items[0].UID)+`"},`+
		`"spec":{"containers":[{"name":"c","image":"busybox","resources":{}}]},"status":{}}]`)
	s.until("/metrics/cadvisor", 200, "\ncontainer_scrape_error 0\n", "\nmachine_cpu_cores ", `{container="",id="/",image="",`)
	s.until("/metrics/probes", 200)
	s.until("/configz", 200, `{"kubeletconfig":"as serve was started"}`)

	// A crash is counted.
	s.runtime.Exit(string(list.Items[0].UID)+"-c-0", 1)
	s.until("/metrics", 200, "\nkube_pod_container_status_restarts_total{container=\"c\",namespace=\"default\",pod=\"web-n\",uid=\""+string(list.Items[0].UID)+"\"} 1\n",
		"\npodrun_pleg_events_total{type=\"died\"} 1\n")

	// A manifest that turns bad is told, and the pod runs on.
	s.write("web.yaml", strings.Replace(webManifest, "image: busybox", "imag: busybox", 1))
	s.until("/readyz?verbose", 503, "[+]sources ok\n[+]relist ok\n[-]manifests failed: ", "web.yaml:6", "imag")
	s.until("/metrics", 200, "\npodrun_manifest_problems{source=\"file\"} ")
	s.until("/healthz", 200, "ok")
	s.until("/pods", 200, `"phase":"Running"`)
	s.write("web.yaml", webManifest)
	s.until("/readyz", 200, "ok")
	s.until("/metrics", 200, "\npodrun_manifest_problems{source=\"file\"} 0\n")

	// containerd out of reach, and back.
	s.runtime.Fail("ListContainers", fmt.Errorf("listing containers: %w", runtime.ErrUnavailable))
	s.runtime.Fail("InspectContainers", runtime.ErrUnavailable)
	s.runtime.Fail("Wakeups", runtime.ErrUnavailable)
	s.runtime.BreakStream()
	s.until("/healthz?verbose", 500, "[+]relist ok\n[-]containerd failed: ")
	s.until("/readyz", 503, "[-]relist failed: ")
	s.until("/metrics", 200, "\npodrun_evented_pleg_connected 0\n")
	for _, call := range []string{"ListContainers", "InspectContainers", "Wakeups"} {
		s.runtime.Fail(call, nil)
	}
	s.until("/healthz", 200, "ok")
	s.until("/readyz", 200, "ok")
	s.until("/metrics", 200, "\npodrun_evented_pleg_connected 1\n", "\npodrun_evented_pleg_connections_total 2\n")

	s.stop()
	if err := <-s.done; err != nil {
		t.Errorf("Serve returned %v", err)
	}
	if _, err := os.Lstat(s.o.Dirs.Socket()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

// TestServeWaitsForItsSources: serve is not ready before all sources have been read.
func TestServeWaitsForItsSources(t *testing.T) {
	s := newServing(t)
	// A server that never answers.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s.o.Sources.URL = "http://" + l.Addr().String() + "/pods.yaml"
	s.write("web.yaml", webManifest)
	s.start()
	s.until("/pods", 200, `"phase":"Running"`)
	s.until("/readyz", 503, "[-]sources failed: ", "[+]relist ok")
	s.stop()
	if err := <-s.done; err != nil {
		t.Errorf("Serve returned %v", err)
	}
}

func TestServeListensOnLoopbackOnly(t *testing.T) {
	s := newServing(t)
	s.o.Listen.Address = "0.0.0.0:0"
	if err := Serve(t.Context(), s.o, false); !errors.Is(err, sources.ErrUsage) || !strings.Contains(err.Error(), "loopback") {
		t.Errorf("got %v", err)
	}
	if calls := s.runtime.Calls(); len(calls) > 0 {
		t.Errorf("called %v", calls)
	}
}
