package api

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func sickPod(message string) v1.Pod {
	return v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-n", Namespace: "default", Annotations: map[string]string{"podrun.io/manifest": "/etc/pods/web.yaml"}},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c"}}},
		Status: v1.PodStatus{Phase: v1.PodPending, PodIP: "10.0.0.7", ContainerStatuses: []v1.ContainerStatus{
			{Name: "c", RestartCount: 3, State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: message}}},
		}},
	}
}

// TestPage: what a pod has is text, whatever it looks like, and nothing is fetched from elsewhere.
func TestPage(t *testing.T) {
	w := httptest.NewRecorder()
	handler(told{pods: []v1.Pod{sickPod("<script>alert(1)</script>")}}).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	body := w.Body.String()
	for _, want := range []string{
		`<tr class="ill"><td>default</td><th scope="row">web-n</th><td class="state">Pending</td><td class="number">0/1</td><td class="number">3</td>`, "<td>10.0.0.7</td>",
		`href="containerLogs/default/web-n/c?tailLines=500">c</a>`, "CrashLoopBackOff: &lt;script&gt;alert(1)", "/etc/pods/web.yaml",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in\n%s", want, body)
		}
	}
	if strings.Contains(body, "alert(1)</script>") || strings.Contains(body, "://") {
		t.Errorf("foreign: %s", body)
	}
	if got := w.Header().Get("Content-Security-Policy"); w.Code != 200 || !strings.Contains(got, "default-src 'none'") {
		t.Errorf("%d, policy %q", w.Code, got)
	}
}

// changing is a Node whose pods change.
type changing struct {
	told
	mu  sync.Mutex
	now []v1.Pod
}

func (c *changing) Pods() ([]v1.Pod, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now, nil
}

func TestPageIsToldAnew(t *testing.T) {
	node := &changing{}
	server := httptest.NewServer(NewHandler(Options{Node: node, Metrics: http.NotFoundHandler(), Resource: http.NotFoundHandler()}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/live", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	next := func() (rows string) {
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				if err := json.Unmarshal([]byte(data), &rows); err != nil {
					t.Fatal(err)
				}
				return rows
			}
		}
		t.Fatal(lines.Err())
		return ""
	}
	if rows := next(); !strings.Contains(rows, "There are no pods.") {
		t.Errorf("first: %s", rows)
	}
	node.mu.Lock()
	node.now = []v1.Pod{sickPod("again")}
	node.mu.Unlock()
	if rows := next(); !strings.Contains(rows, "CrashLoopBackOff: again") {
		t.Errorf("then: %s", rows)
	}
}
