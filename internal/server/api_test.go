package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubelet "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/stats"
)

// fakeNode is a Node with the data of the test.
type fakeNode struct {
	health, ready []Check
	pods          []v1.Pod
	machine       Machine
	problems      []string
	desired       manifest.Desired
	summary       *kubelet.Summary // nil: without usage
	log           string           // what every container wrote; "": what was asked for
	err           error
	probes        []ProbeResult
}

func (n fakeNode) Health() []Check         { return n.health }
func (n fakeNode) Ready() []Check          { return n.ready }
func (n fakeNode) Pods() ([]v1.Pod, error) { return n.pods, n.err }
func (n fakeNode) Running() []v1.Pod       { return n.pods }
func (n fakeNode) Machine() Machine        { return n.machine }
func (n fakeNode) Problems() []string      { return n.problems }

func (n fakeNode) Totals(context.Context) []stats.Total { return nil }

func (n fakeNode) ProbeResults(types.UID) []ProbeResult { return n.probes }

func (n fakeNode) Desired() manifest.Desired { return n.desired }

func (n fakeNode) Summary(_ context.Context, whole bool) (*kubelet.Summary, error) {
	if n.summary != nil {
		return n.summary, n.err
	}
	s := &kubelet.Summary{Node: kubelet.NodeStats{NodeName: "n"}, Pods: []kubelet.PodStats{}}
	if whole {
		s.Node.Fs = &kubelet.FsStats{}
	}
	return s, n.err
}

// Log writes the request instead of a log.
func (n fakeNode) Log(_ context.Context, want LogRequest, out io.Writer) error {
	tail := -1
	if want.Tail != nil {
		tail = *want.Tail
	}
	switch want.Container {
	case "none":
		return fmt.Errorf("container %q: %w", want.Container, ErrNotFound)
	case "new":
		return fmt.Errorf("container %q is %w", want.Container, ErrNotYet)
	}
	if n.log != "" {
		_, err := io.WriteString(out, n.log)
		return err
	}
	stream := ""
	if want.Stream != "" {
		stream = " stream=" + want.Stream
	}
	_, err := fmt.Fprintf(out, "%s/%s/%s follow=%t previous=%t timestamps=%t tail=%d since=%t%s\n", want.Namespace, want.Pod, want.Container,
		want.Follow, want.Previous, want.Timestamps, tail, !want.Since.IsZero(), stream)
	return err
}

func event(pod, message, uid string) v1.Event {
	return v1.Event{
		InvolvedObject: v1.ObjectReference{Kind: "Pod", Namespace: "default", Name: pod, UID: types.UID(uid)},
		Type:           "Warning", Reason: "BackOff", Message: message, Count: 4,
	}
}

func handler(n fakeNode) http.Handler {
	return NewHandler(Options{
		Node: n, Log: slog.New(slog.DiscardHandler),
		Events: func() ([]v1.Event, error) {
			return []v1.Event{
				event("web-n", "of another", "u2"), event("web", "of another pod", "u1"), event("web-n", "<script>alert(1)</script>\x1b[2J", "u1"),
			}, nil
		},
		Resource:   http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "taken 1\n") }),
		Containers: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "used 1\n") }),
		Probes:     http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "probed 1\n") }),
		Config:     map[string]any{"kubeletconfig": map[string]any{"kind": "KubeletConfiguration"}},
		Metrics:    http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "a_metric 1\n") }),
	})
}

func TestAnswers(t *testing.T) {
	good := []Check{{Name: "relist"}, {Name: "manifests"}}
	bad := []Check{{Name: "relist"}, {Name: "manifests", Err: errors.New("a.yaml:1: no\n[+]b.yaml\x1b[2J ok")}}
	two := v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-n", Namespace: "default"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "a"}, {Name: "b"}}},
	}
	web := v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-n", Namespace: "default"}}
	tests := []struct {
		name, method, path string
		node               fakeNode
		status             int
		want               string // the whole body, or with … its beginning
	}{
		{"healthy", "GET", "/healthz", fakeNode{health: good}, 200, "ok"},
		{"healthy, at length", "GET", "/healthz?verbose", fakeNode{health: good}, 200, "[+]relist ok\n[+]manifests ok\nhealthz check passed\n"},
		{"unhealthy", "GET", "/healthz", fakeNode{health: bad, ready: good}, 500, "[+]relist ok\n[-]manifests failed: a.yaml:1: no; [+]b.yaml\\x1b[2J ok\nhealthz check failed\n"},
		{"ready", "GET", "/readyz", fakeNode{ready: good, health: bad}, 200, "ok"},
		{"not ready", "GET", "/readyz", fakeNode{ready: bad}, 503, "[+]relist ok\n[-]manifests failed: a.yaml:1: no; [+]b.yaml\\x1b[2J ok\nreadyz check failed\n"},
		{"one left out", "GET", "/readyz?exclude=manifests", fakeNode{ready: bad}, 200, "ok"},
		{"no check left out", "GET", "/readyz?verbose&exclude=nope&exclude=relist&exclude=nope", fakeNode{ready: good}, 200,
			"[+]relist excluded: ok\n[+]manifests ok\nwarn: some health checks cannot be excluded: no matches for \"nope\"\nreadyz check passed\n"},
		{"no check left out of those that fail", "GET", "/readyz?exclude=%1b", fakeNode{ready: bad}, 503,
			"[+]relist ok\n[-]manifests failed: a.yaml:1: no; [+]b.yaml\\x1b[2J ok\nwarn: some health checks cannot be excluded: no matches for \"\\x1b\"\nreadyz check failed\n"},
		{"metrics", "GET", "/metrics", fakeNode{}, 200, "a_metric 1\n"},
		{"resource metrics", "GET", "/metrics/resource", fakeNode{}, 200, "taken 1\n"},
		{"container metrics", "GET", "/metrics/cadvisor", fakeNode{}, 200, "used 1\n"},
		{"metrics of probes", "GET", "/metrics/probes", fakeNode{}, 200, "probed 1\n"},
		{"settings", "GET", "/configz", fakeNode{}, 200, `{"kubeletconfig":{"kind":"KubeletConfiguration"}}`},
		{"nothing runs", "GET", "/runningpods/", fakeNode{}, 200, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}`},
		{"what runs", "GET", "/runningpods/", fakeNode{pods: []v1.Pod{web}, err: errors.New("no statuses")}, 200, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"web-n"…`},
		{"below what runs", "GET", "/runningpods/web-n", fakeNode{}, 404, "404 page not found\n"},
		{"stats", "GET", "/stats/summary", fakeNode{err: errors.New("the machine is not read")}, 200, `{"node":{"nodeName":"n","startTime":null,"fs":…`},
		{"stats of processors and memory", "GET", "/stats/summary?only_cpu_and_memory=true", fakeNode{}, 200, `{"node":{"nodeName":"n","startTime":null},"pods":[]}`},
		{"stats of what", "GET", "/stats/summary?only_cpu_and_memory=perhaps", fakeNode{}, 400, "only_cpu_and_memory=\"perhaps\" cannot be used\n"},
		{"no pods", "GET", "/pods", fakeNode{}, 200, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}`},
		{"pods", "GET", "/pods", fakeNode{pods: []v1.Pod{web}}, 200, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"web-n"…`},
		{"pods cannot be read", "GET", "/pods", fakeNode{err: errors.New("broken")}, 500, "the pods cannot be read: broken\n"},
		{"head", "HEAD", "/readyz", fakeNode{ready: bad}, 503, "…"},
		{"head of a log", "HEAD", "/containerLogs/ns/web/c?follow=true", fakeNode{}, 200, "ns/web/c follow=false …"},
		{"head of what has no end", "HEAD", "/live", fakeNode{}, 200, "data: …"},
		{"post", "POST", "/healthz", fakeNode{health: good}, 405, "podrun's HTTP is read-only\n"},
		{"delete", "DELETE", "/pods", fakeNode{}, 405, "podrun's HTTP is read-only\n"},
		{"log", "GET", "/containerLogs/ns/web/c", fakeNode{}, 200, "ns/web/c follow=false previous=false timestamps=false tail=-1 since=false\n"},
		{"part of a log", "GET", "/containerLogs/ns/web/c?follow=true&timestamps=1&tailLines=5&sinceSeconds=3", fakeNode{}, 200, "ns/web/c follow=true previous=false timestamps=true tail=5 since=true\n"},
		{"log since", "GET", "/containerLogs/ns/web/c?previous=true&tail=all&sinceTime=2026-01-02T03:04:05Z", fakeNode{}, 200, "ns/web/c follow=false previous=true timestamps=false tail=-1 since=true\n"},
		{"a stream of a log", "GET", "/containerLogs/ns/web/c?stream=Stderr&tailLines=2", fakeNode{}, 200, "ns/web/c follow=false previous=false timestamps=false tail=2 since=false stream=Stderr\n"},
		{"no such stream", "GET", "/containerLogs/ns/web/c?stream=stderr", fakeNode{}, 400, "stream=\"stderr\" cannot be used\n"},
		{"logs of a pod", "GET", "/pod/default/web-n/log?tailLines=2&previous=1", fakeNode{pods: []v1.Pod{two}}, 200, " a stdout default/web-n/a follow=false previous=true timestamps=true tail=2 since=false\n" +
			" b stdout default/web-n/b follow=false previous=true timestamps=true tail=2 since=false\n"},
		{"log of one of them", "GET", "/pod/default/web-n/log?container=b&stream=All", fakeNode{pods: []v1.Pod{two}}, 200, " b stdout default/web-n/b …"},
		{"beginning of the logs", "GET", "/pod/default/web-n/log?limitBytes=9", fakeNode{pods: []v1.Pod{two}}, 200, " a stdout"},
		{"head of the logs", "HEAD", "/pod/default/web-n/log?follow=true", fakeNode{pods: []v1.Pod{two}}, 200, " a stdout default/web-n/a follow=false …"},
		{"log of no container", "GET", "/pod/default/web-n/log?container=c", fakeNode{pods: []v1.Pod{two}}, 404, "container \"c\" in pod web-n: not found\n"},
		{"logs of no pod", "GET", "/pod/default/none/log", fakeNode{pods: []v1.Pod{two}}, 404, "pod default/none: not found\n"},
		{"logs with what is wrong", "GET", "/pod/default/web-n/log?follow=perhaps", fakeNode{pods: []v1.Pod{two}}, 400, "follow=\"perhaps\" cannot be used\n"},
		{"beginning of a log", "GET", "/containerLogs/ns/web/c?limitBytes=6&tail=7", fakeNode{}, 200, "ns/web"},
		{"log of nothing", "GET", "/containerLogs/ns/web/none", fakeNode{}, 404, "container \"none\": not found\n"},
		{"log too early", "GET", "/containerLogs/ns/web/new", fakeNode{}, 400, "container \"new\" is waiting to start\n"},
		{"wrong tail", "GET", "/containerLogs/ns/web/c?tailLines=-1", fakeNode{}, 400, "tailLines=\"-1\" cannot be used\n"},
		{"wrong since", "GET", "/containerLogs/ns/web/c?sinceSeconds=0", fakeNode{}, 400, "sinceSeconds=\"0\" cannot be used\n"},
		{"since twice", "GET", "/containerLogs/ns/web/c?sinceSeconds=5&sinceTime=2026-01-02T03:04:05Z", fakeNode{}, 400, "sinceTime=\"2026-01-02T03:04:05Z\" cannot be used\n"},
		{"wrong follow", "GET", "/containerLogs/ns/web/c?follow=perhaps", fakeNode{}, 400, "follow=\"perhaps\" cannot be used\n"},
		{"following what has ended", "GET", "/containerLogs/ns/web/c?follow=1&previous=1", fakeNode{}, 400, "the previous run has ended: it cannot be followed\n"},
		{"nothing there", "GET", "/exec", fakeNode{}, 404, "404 page not found\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			handler(tt.node).ServeHTTP(w, httptest.NewRequest(tt.method, tt.path, nil))
			begin, partly := strings.CutSuffix(tt.want, "…")
			if body := w.Body.String(); w.Code != tt.status || body != tt.want && (!partly || !strings.HasPrefix(body, begin)) {
				t.Errorf("got %d %q, want %d %q", w.Code, body, tt.status, tt.want)
			}
			if tt.status == http.StatusMethodNotAllowed && w.Header().Get("Allow") != "GET, HEAD" {
				t.Errorf("Allow: %q", w.Header().Get("Allow"))
			}
		})
	}
}

func TestPodsAreAPodList(t *testing.T) {
	pods := []v1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "web-n"}, Status: v1.PodStatus{Phase: v1.PodRunning}}}
	w := httptest.NewRecorder()
	handler(fakeNode{pods: pods}).ServeHTTP(w, httptest.NewRequest("GET", "/pods", nil))
	var list v1.PodList
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	if list.Kind != "PodList" || len(list.Items) != 1 || list.Items[0].Status.Phase != v1.PodRunning {
		t.Errorf("got %+v", list)
	}
	if got := w.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type %q", got)
	}
}

func TestOtherHosts(t *testing.T) {
	h := ListenOptions{Address: "127.0.0.1:0"}.guard(handler(fakeNode{}))
	for host, want := range map[string]int{
		"127.0.0.1:10255": 200, "localhost": 200, "[::1]:1": 200, "[::1]": 200, "127.0.0.2": 200,
		"evil.example": 421, "127.0.0.1.evil.example:80": 421, "": 421, "10.0.0.1:80": 421,
	} {
		r := httptest.NewRequest("GET", "/healthz", nil)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%q: got %d, want %d", host, w.Code, want)
		}
	}
}
