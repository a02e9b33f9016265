package server

import (
	"maps"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubelet "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podrun.io/podrun/internal/server/rows"
	"podrun.io/podrun/internal/stats/history"
	"podrun.io/podrun/internal/test"
	"podrun.io/podrun/internal/workload"
)

// listed are the pods of TestFilter: one is crashing, one is starting, one runs and one has ended.
func listed() fakeNode {
	crashing := sickPod("no such file")
	crashing.Status.ContainerStatuses[0].LastTerminationState.Terminated = &v1.ContainerStateTerminated{
		Reason: "OOMKilled", FinishedAt: metav1.NewTime(time.Now().Add(-5 * time.Minute)),
	}
	one := func(name, namespace string, phase v1.PodPhase, c v1.ContainerStatus) v1.Pod {
		p := v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, UID: types.UID(name)}}
		p.Labels = map[string]string{"app": name}
		p.Spec.Containers, p.Status.Phase = []v1.Container{{Name: "c"}}, phase
		c.Name = "c"
		p.Status.ContainerStatuses = []v1.ContainerStatus{c}
		return p
	}
	starting := one("starting", "default", v1.PodPending, v1.ContainerStatus{
		State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}},
	})
	starting.Annotations = map[string]string{workload.Annotation: "Deployment/web"}
	running := one("running", "other", v1.PodRunning, v1.ContainerStatus{
		Ready: true, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
	})
	ended := one("ended", "default", v1.PodSucceeded, v1.ContainerStatus{
		State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Completed"}},
	})
	now := time.Now()
	all := []v1.Pod{crashing, ended, running, starting}
	usage := &kubelet.Summary{}
	for i := range all {
		all[i].Status.StartTime = new(metav1.NewTime(now.Add(-time.Duration(i) * 25 * time.Hour)))
		usage.Pods = append(usage.Pods, kubelet.PodStats{
			PodRef: kubelet.PodReference{UID: string(all[i].UID)},
			CPU:    &kubelet.CPUStats{UsageNanoCores: new(uint64(i * 1e6))},
			Memory: &kubelet.MemoryStats{WorkingSetBytes: new(uint64(10-i) << 20)},
		})
	}
	return fakeNode{pods: all, summary: usage}
}

// TestFilter: the address says which pods the page and its updates show, and in which order.
func TestFilter(t *testing.T) {
	node := listed()
	get := func(path string) string {
		w, method := httptest.NewRecorder(), "GET"
		if strings.HasPrefix(path, "/live") {
			method = "HEAD" // it ends
		}
		handler(node).ServeHTTP(w, httptest.NewRequest(method, path, nil))
		return w.Body.String()
	}
	for _, body := range []string{get("/?sort=workload"), get("/live?sort=workload")} {
		body = strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\"`, `"`).Replace(body)
		of, free := strings.Index(body, `colspan="12">Deployment web in default</th>`), strings.Index(body, `>Pods of no workload</th>`)
		if row := strings.Index(body, `data-pod="starting"`); of < 0 || row < of || free < row || strings.Count(body, "rowgroup") != 2 {
			t.Errorf("headings of workloads: %s", body)
		}
	}
	if strings.Contains(get("/"), "rowgroup") {
		t.Error("there are headings in another order")
	}
	shown := regexp.MustCompile(`data-pod=\\?"([a-z-]+)`)
	for query, want := range map[string]string{
		"":              "web-n ended running starting",
		"sort=name":     "web-n ended running starting",
		"sort=state":    "web-n starting running ended",
		"sort=restarts": "web-n ended running starting",
		"sort=age":      "web-n ended running starting",
		"sort=cpu":      "starting running ended web-n",
		"sort=memory":   "web-n ended running starting",
		"sort=workload": "starting web-n ended running",
		"search=deployment+web&namespace=default": "starting",
		"sort=other":                              "web-n ended running starting",
		"state=unwell":                            "web-n starting",
		"state=well":                              "running",
		"state=ended":                             "ended",
		"state=other":                             "web-n ended running starting",
		"namespace=other":                         "running",
		"namespace=none":                          "",
		"search=CRASH+oomk":                       "web-n",
		"search=10.0.0.7":                         "web-n",
		"search=ing":                              "running starting",
		"search=crash+ended":                      "",
		"label=app%3Drunning":                     "running",
		"label=app+in+(ended,x)":                  "ended",
		"label=app":                               "ended running starting",
		"label=app%3D%3D%3D":                      "",
		"state=unwell&label=app":                  "starting",
		"search=ing&sort=cpu&state=":              "starting running",
		"namespace=default&sort=cpu":              "starting ended web-n",
		"search=" + url.QueryEscape(`"><script>`): "",
	} {
		for _, body := range []string{get("/?" + query), get("/live?" + query)} {
			var got []string
			for _, m := range shown.FindAllStringSubmatch(body, -1) {
				got = append(got, m[1])
			}
			if !slices.Equal(got, strings.Fields(want)) {
				t.Errorf("%s: got %v, want %s", query, got, want)
			}
			if strings.Contains(body, `"><script>`) {
				t.Errorf("%s: not escaped", query)
			}
		}
	}
	body := get("/?state=unwell&search=%22a&label=app%3D%3D%3D")
	for _, want := range []string{
		`data-live="live?label=app%3D%3D%3D&amp;search=%22a&amp;state=unwell"`, `name="search" value="&#34;a"`,
		`<option value="unwell" selected>not well</option>`, `These labels select nothing: `, `0 of 4 pods.`,
		`<option value="other">other</option>`, `None of the 4 pods is so.`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in %s", want, body)
		}
	}
	if body = get("/?namespace=gone"); !strings.Contains(body, `<option value="gone" selected>gone</option>`) {
		t.Errorf("the chosen namespace is not among them: %s", body)
	}
	body = get("/?sort=name")
	for _, want := range []string{
		`<td class="number">3 (5m ago, OOMKilled)</td><td class="number wide">&lt;1m</td>`, `class="waiting" data-pod="starting"`, `<div class="more">of Deployment web</div>`,
		`class="well" data-pod="running"`, `class="ended" data-pod="ended"`, `<td class="number wide">25h</td>`, `<td class="number wide">3d</td>`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in %s", want, body)
		}
	}
	if strings.Contains(body, "4 pods.") {
		t.Error("all pods are counted")
	}
}

// TestChangesOnly: a browser is sent the rows that have changed, and all of them when there are others or their order is
// another one.
func TestChangesOnly(t *testing.T) {
	node := listed()
	p := newPage(Options{Node: node, History: history.New(history.Options{})}, nil)
	was, err := p.listParts(rows.FilterOf(url.Values{}))
	test.Must(t, err)
	changed := func(f rows.Filter) string {
		now, err := p.listParts(f)
		test.Must(t, err)
		return strings.Join(slices.Sorted(maps.Keys(now.since(was))), " ")
	}
	byName := rows.FilterOf(url.Values{})
	if got := changed(byName); got != "" {
		t.Errorf("nothing has changed, and %s was sent", got)
	}
	node.pods[1].Status.PodIP = "10.9.9.9"
	if got := changed(byName); got != "row:default/ended" {
		t.Errorf("one row has changed, and %q was sent", got)
	}
	if got := changed(rows.FilterOf(url.Values{"sort": {"cpu"}})); got != "pods" {
		t.Errorf("the order has changed, and %q was sent", got)
	}
	if got := changed(rows.FilterOf(url.Values{"search": {"ing"}})); got != "count pods" {
		t.Errorf("the pods are others, and %q was sent", got)
	}
	if got := strings.Join(slices.Sorted(maps.Keys(was.since(parts{}))), " "); got != "count node plugins pods problems sources verdict workloads" {
		t.Errorf("at first %q was sent", got)
	}
}
