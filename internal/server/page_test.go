package server

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/netutil"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status/overview"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/jobs"
)

func sickPod(message string) v1.Pod {
	return v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-n", Namespace: "default", UID: "u1", Annotations: map[string]string{"podrun.io/manifest": "/etc/pods/web.yaml"}},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c"}}},
		Status: v1.PodStatus{Phase: v1.PodPending, PodIP: "10.0.0.7", ContainerStatuses: []v1.ContainerStatus{
			{Name: "c", RestartCount: 3, State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: message}}},
		}},
	}
}

// TestPageOfTheNode: the page shows the machine, what it uses of what it has, manifests that cannot be used, and what
// pods use beside their limits.
func TestPageOfTheNode(t *testing.T) {
	p := sickPod("")
	p.Spec.Containers[0].Resources.Limits = v1.ResourceList{"cpu": quantity.MustParse("500m"), "memory": quantity.MustParse("64Mi")}
	p.Spec.Containers[0].Resources.Requests = v1.ResourceList{"cpu": quantity.MustParse("100m")}
	half := sickPod("") // one of its containers has no limit
	half.Name, half.UID = "half-n", "u2"
	half.Spec.Containers = append(half.Spec.Containers, v1.Container{Name: "free"})
	half.Spec.Containers[0].Resources.Limits = p.Spec.Containers[0].Resources.Limits
	whole := sickPod("") // limited as a whole
	whole.Name, whole.UID = "whole-n", "u3"
	whole.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{"memory": quantity.MustParse("1Gi")}}
	cpu, memory := &kubelet.CPUStats{UsageNanoCores: new(uint64(120e6))}, &kubelet.MemoryStats{WorkingSetBytes: new(uint64(30 << 20))}
	usage := &kubelet.Summary{Node: kubelet.NodeStats{
		CPU: cpu, Memory: &kubelet.MemoryStats{WorkingSetBytes: new(uint64(1 << 30)), AvailableBytes: new(uint64(3 << 30))},
		Rlimit:    &kubelet.RlimitStats{NumOfRunningProcesses: new(int64(200)), MaxPID: new(int64(1000))},
		StartTime: metav1.NewTime(time.Now().Add(-80 * time.Hour)),
	}}
	meter := func(name string, whole, used uint64) string {
		return fmt.Sprintf(`<dt>%s</dt><dd><meter min="0" max="%d" value="%d" aria-hidden="true"></meter> `, name, whole, used)
	}
	for _, uid := range []string{"u1", "u2", "u3"} {
		usage.Pods = append(usage.Pods, kubelet.PodStats{
			PodRef: kubelet.PodReference{UID: uid}, CPU: cpu, Memory: memory, Containers: []kubelet.ContainerStats{{Name: "c", CPU: cpu, Memory: memory}},
		})
	}
	job := &workload.Workload{
		ID: workload.ID{Kind: workload.Job, Key: pod.Key{Namespace: "default", Name: "prepare"}}, Object: &batchv1.Job{},
	}
	failed := &jobs.History{Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{
		Type: batchv1.JobFailed, Status: v1.ConditionTrue, Reason: "Bad", Message: "<b>\x1b[1m",
	}}}}
	node := fakeNode{
		desired: manifest.Desired{Workloads: []*workload.Workload{job}, Histories: workload.Histories{
			Jobs: map[workload.ID]*jobs.History{job.ID: failed},
		}},
		pods: []v1.Pod{p, half, whole}, summary: usage, problems: []string{"/etc/pods/<b>.yaml:6: unknown field"},
		health: []Check{{"relist", errors.New("<b>\x1b[1m")}, {"containerd", nil}},
		ready:  []Check{{"relist", errors.New("again")}, {"manifests", errors.New("wrong")}, {"disk", errors.New("full")}},
		machine: Machine{Name: "node<1>", Version: "v1.2.3", Containerd: "2.4.2", Kernel: "6.18\x1b", Since: time.Now().Add(-150 * time.Minute), Processors: 2, Disks: []Disk{
			{Name: "imagefs", Capacity: 100 << 20, Free: 50 << 20}, {Name: "nodefs", Capacity: 100 << 20, Free: 5 << 20, Pressed: true},
		}, Plugins: []Plugin{
			{Name: "example.com/gpu", Type: "DevicePlugin", Connected: true, Devices: 3, Healthy: 3, Used: 1},
			{Name: "csi.<b>.com", Type: "CSIPlugin", Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Volumes: 2},
			{Name: "example.com/fpga", Type: "DevicePlugin", Connected: true, Devices: 2, Healthy: 1},
		}},
	}
	get := func(path string) string {
		w := httptest.NewRecorder()
		handler(node).ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Body.String()
	}
	body := get("/")
	for _, want := range []string{
		"<dt>Node</dt><dd>node&lt;1&gt;: podrun v1.2.3, containerd 2.4.2, Linux 6.18\\x1b</dd>", "<dt>Up</dt><dd>podrun 2h, the machine 3d</dd>",
		meter("CPU", 2000, 120) + "120m of 2000m; requests 100m; limits 1000m</dd>", meter("Memory", 4<<30, 1<<30) + "1024Mi of 4096Mi; limits 1152Mi</dd>",
		meter("PIDs", 1000, 200) + "200 of 1000</dd>", meter("imagefs", 100<<20, 50<<20) + "50 % of 100Mi free</dd>",
		meter("nodefs", 100<<20, 95<<20) + "5 % of 100Mi free, <strong class=\"pressed\">too little: disk pressure</strong></dd>",
		`<p class="ill"><span class="state"><a id="unwell" href="?state=unwell">Not well: 3 pods, 1 Job, 1 manifest, 2 plugins, relist: &lt;b&gt;\x1b[1m, disk: full</a></span></p>`,
		"<h2>Manifests that cannot be used</h2>", "<li>/etc/pods/&lt;b&gt;.yaml:6: unknown field</li>",
		`<td class="number wide">120m of 500m</td><td class="number wide">30Mi of 64Mi</td>`, `<td class="number wide">120m</td><td class="number wide">30Mi</td>`,
		`<td class="number wide">120m</td><td class="number wide">30Mi of 1Gi</td>`,
		`<tr id="plugin:DevicePlugin/example.com/gpu"><th scope="row">example.com/gpu</th><td class="wide">DevicePlugin</td>` +
			`<td class="state text">Connected</td><td class="text">3 of 3 healthy, 1 used</td><td class="number"></td>`,
		`<tr id="plugin:CSIPlugin/csi.&lt;b&gt;.com" class="ill"><th scope="row">csi.&lt;b&gt;.com</th><td class="wide">CSIPlugin</td>` +
			`<td class="state text">Disconnected since 2026-01-02 03:04:05Z</td><td class="text"></td><td class="number">2</td>`,
		`<tr id="plugin:DevicePlugin/example.com/fpga" class="ill">`,
		`<tr id="workload:Job/default/prepare" class="ill"><td class="wide">default</td><th scope="row">` +
			`<a href="?search=Job+prepare&amp;namespace=default" aria-label="Pods of Job prepare">Job prepare</a><div class="narrow">Bad: &lt;b&gt;\x1b[1m</div></th><td class="state">Failed 0/1</td>`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in %s", want, body)
		}
	}
	if n := strings.Count(body, "<h2>Pods</h2>"); n != 1 {
		t.Errorf("%d headings of the pods", n)
	}
	if body = get("/pod/default/web-n"); !strings.Contains(body, `<td class="number wide">120m of 500m</td><td class="number wide">30Mi of 64Mi</td>`) {
		t.Error(body)
	}
	// They are parts that change on an open page.
	w := httptest.NewRecorder()
	handler(node).ServeHTTP(w, httptest.NewRequest("HEAD", "/live", nil))
	for _, part := range []string{`"node":"`, `"problems":"`, `"plugins":"`, `"workloads":"`, `"pods":"`} {
		if !strings.Contains(w.Body.String(), part) {
			t.Errorf("no %s in %s", part, w.Body)
		}
	}
	node.desired = manifest.Desired{}
	if n := strings.Count(get("/"), "<h2>Pods</h2>"); n != 1 {
		t.Errorf("%d headings of the pods between them and the plugins", n)
	}
	node.problems, node.machine.Plugins = nil, nil
	if body = get("/"); strings.Contains(body, "cannot be used") || strings.Contains(body, "Workload</th>") || strings.Contains(body, "Plugin") {
		t.Errorf("no manifest is wrong, and there is no workload and no plugin: %s", body)
	}
}

// TestVerdict: one line says whether the machine is well.
func TestVerdict(t *testing.T) {
	pods := listed().pods // one is ill, one waits, one runs and one has ended
	attempt := pods[0]    // of a Job
	attempt.Status.Phase, attempt.Annotations = v1.PodFailed, map[string]string{workload.Annotation: "Job/a"}
	failed := []Check{{"sources", nil}, {"rollback", errors.New("web")}}
	for _, c := range []struct {
		pods   []v1.Pod
		data   listData
		checks []Check
		want   verdict
	}{
		{nil, listData{}, nil, verdict{true, "All is well."}},
		{pods[1:3], listData{Plugins: []pluginData{{Well: true}}}, failed[:1], verdict{true, "All is well."}},
		{pods[1:], listData{}, nil, verdict{true, "Well; not ready yet: 1 of 3 pods."}},
		{pods, listData{}, failed, verdict{false, "Not well: 1 pod, rollback: web"}},
		{[]v1.Pod{attempt}, listData{Workloads: []overview.Workload{{Kind: "Job", Well: true}}}, nil, verdict{true, "All is well."}},
		{[]v1.Pod{attempt}, listData{Workloads: []overview.Workload{{Kind: "Job"}}}, nil, verdict{false, "Not well: 1 Job"}},
		{nil, listData{Problems: []string{"a", "b"}, Plugins: []pluginData{{}}}, nil, verdict{false, "Not well: 2 manifests, 1 plugin"}},
	} {
		if got := verdictOf(c.data, c.pods, c.checks); got != c.want {
			t.Errorf("got %+v, want %+v", got, c.want)
		}
	}
}

// TestPages: data of a pod are escaped, whatever they contain, and nothing is loaded from
// elsewhere.
func TestPages(t *testing.T) {
	const evil = "<script>alert(1)</script>\x1b[2J"
	sick := sickPod(evil)
	sick.Annotations["podrun.io/manifest"] = `/etc/pods/"><img src=x>.yaml`
	sick.Annotations["podrun.io/manifest-error"] = "line 1: " + evil
	sick.Spec.InitContainers = []v1.Container{{Name: "first", Env: []v1.EnvVar{
		{Name: "TEXT", Value: evil}, {Name: "KEY", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{Key: "k"}}},
	}}}
	sick.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "first", Ready: true, State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Message: evil}}}}
	node := fakeNode{pods: []v1.Pod{sick}, log: "line \x1b[31mred\x1b[0m\n" + evil + "\n"}
	const escaped = `&lt;script&gt;alert(1)&lt;/script&gt;\x1b[2J`
	for path, wants := range map[string][]string{
		"/": {
			`class="ill" data-pod="web-n" data-state="CrashLoopBackOff"><td class="wide">default</td><th scope="row"><a id="default/web-n" href="pod/default/web-n">web-n</a></th>`,
			`<td class="state">CrashLoopBackOff</td><td class="number">0/1</td><td class="number">3</td><td class="number wide"></td><td class="text reason">c: CrashLoopBackOff: ` + escaped + `</td>`,
			`href="pod/default/web-n?container=first#log"`, `<td class="wide widest">10.0.0.7</td>`, "/etc/pods/&#34;&gt;&lt;img src=x&gt;.yaml",
		},
		"/pod/default/web-n": {
			`<a id="up" href="../../#default/web-n">`, `<dd class="state">CrashLoopBackOff</dd>`, "line 1: " + escaped, `<a href="?container=first#log">first</a> (init)`,
			`<a href="?container=c#log" aria-current="true">c</a>`, "<td class=\"wide\">Warning</td><td>BackOff</td><td class=\"number wide\">4</td><td class=\"text\">" + escaped,
			"secretKeyRef:\n        key: k\n", `value: &#34;&lt;script&gt;alert(1)&lt;/script&gt;`, ">line red\n&lt;script&gt;alert(1)&lt;/script&gt;\n</pre>", `<h2 id="of">Log of c</h2>`,
			`<option value="*">all containers</option><option id="of-c" selected>c</option><option id="of-first">first</option>`,
			`href="../../containerLogs/default/web-n/c?container=c"`, `data-live="../../pod/default/web-n/live?container=c"`,
		},
		"/pod/default/web-n?container=first&previous=true": {
			`<h2 id="of">Log of first, the run before</h2>`, `<option value="true" selected>`,
			`../../containerLogs/default/web-n/first?container=first&amp;previous=true"`,
		},
		"/pod/default/web-n?container=*&stream=Stderr": {
			`<h2 id="of">Log of all containers</h2>`, `<option value="*" selected>`, `<option value="Stderr" selected>`, "<b>first</b> line red\n",
			"<b>c</b> line red\n", `../../pod/default/web-n/log?container=%2A&amp;stream=Stderr"`, `/live?container=%2A&amp;stream=Stderr"`,
		},
		"/pod/default/web-n?container=other": {`<strong>This pod has no container other.</strong>`, `<option id="of-c" selected>c</option>`, `/live?container=c"`},
	} {
		w := httptest.NewRecorder()
		handler(node).ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		body := w.Body.String()
		for _, want := range wants {
			if !strings.Contains(body, want) {
				t.Errorf("%s: no %s in\n%s", path, want, body)
			}
		}
		whole, script, policy := ownOf(t, body, w.Header().Get("Content-Security-Policy"))
		if !strings.Contains(script, "new EventSource(") || strings.Contains(whole, "src=\"") || strings.Contains(whole, "stylesheet") {
			t.Errorf("%s: does not come whole: %s", path, body)
		}
		if body = whole; strings.Contains(body, "<script>") || strings.ContainsRune(body, '\x1b') || strings.Contains(body, "://") || strings.Contains(body, "of another") {
			t.Errorf("%s: foreign: %s", path, body)
		}
		if w.Code != 200 || policy != "default-src 'none'; style-src STYLE; script-src SCRIPT; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'" {
			t.Errorf("%s: %d, policy %q", path, w.Code, policy)
		}
	}
}

// ownOf removes the style and the script of a page from its body, and their hashes from its policy.
func ownOf(t *testing.T, body, policy string) (rest, script, names string) {
	t.Helper()
	take := func(tag string) string {
		before, after, _ := strings.Cut(body, "<"+tag+">")
		text, after, ok := strings.Cut(after, "</"+tag+">")
		if !ok {
			t.Fatalf("no %s in\n%s", tag, body)
		}
		sum := sha256.Sum256([]byte(text))
		body, policy = before+after, strings.ReplaceAll(policy, "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'", strings.ToUpper(tag))
		return text
	}
	if take("style") == "" {
		t.Error("no style")
	}
	script = take("script")
	return body, script, policy
}

func TestPagesOfWhatIsNotThere(t *testing.T) {
	for path, want := range map[string]string{
		"/pod/default/none": "<h1>There is no pod default/none</h1>", "/pod/default/%3Cb%3E": "There is no pod default/&lt;b&gt;", "/pod/other/web-n": "There is no pod",
	} {
		w := httptest.NewRecorder()
		handler(fakeNode{pods: []v1.Pod{sickPod("")}}).ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if body := w.Body.String(); w.Code != 404 || !strings.Contains(body, want) {
			t.Errorf("%s: %d\n%s", path, w.Code, body)
		}
	}
	w := httptest.NewRecorder()
	handler(fakeNode{err: errors.New("no files")}).ServeHTTP(w, httptest.NewRequest("GET", "/pod/default/web-n", nil))
	if w.Code != 500 || !strings.Contains(w.Body.String(), "no files") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A container that has not run says so; of a long log the end is shown.
func TestLastOfALog(t *testing.T) {
	fresh := sickPod("")
	fresh.Spec.Containers[0].Name = "new"
	w := httptest.NewRecorder()
	handler(fakeNode{pods: []v1.Pod{fresh}}).ServeHTTP(w, httptest.NewRequest("GET", "/pod/default/web-n", nil))
	if !strings.Contains(w.Body.String(), "is waiting to start</pre>") {
		t.Errorf("%s", w.Body)
	}
	w = httptest.NewRecorder()
	handler(fakeNode{pods: []v1.Pod{sickPod("")}, log: strings.Repeat(strings.Repeat("x", 99)+"\n", 10000) + "the end\n"}).
		ServeHTTP(w, httptest.NewRequest("GET", "/pod/default/web-n", nil))
	if body := w.Body.String(); !strings.Contains(body, "\nthe end\n</pre>") || len(body) > 300<<10 {
		t.Errorf("%d bytes, …%s", len(body), body[max(0, len(body)-1000):])
	}
}

// changing is a Node whose pods change.
type changing struct {
	fakeNode
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
	server := httptest.NewServer(NewHandler(Options{Node: node, Metrics: http.NotFoundHandler(), Resource: http.NotFoundHandler(), Containers: http.NotFoundHandler(), Probes: http.NotFoundHandler()}))
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
	next := func() string {
		var parts map[string]string
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				if err := json.Unmarshal([]byte(data), &parts); err != nil {
					t.Fatal(err)
				}
				return parts["pods"]
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

// TestStreamsLeaveConnections: with the maximum number of streaming clients, another client still
// gets a response.
func TestStreamsLeaveConnections(t *testing.T) {
	server := httptest.NewUnstartedServer(NewHandler(Options{Node: &changing{}, Metrics: http.NotFoundHandler(), Resource: http.NotFoundHandler(), Containers: http.NotFoundHandler(), Probes: http.NotFoundHandler()}))
	server.Listener = netutil.LimitListener(server.Listener, connections)
	server.Start()
	defer server.Close()
	defer server.CloseClientConnections()
	ask := func(path string) int {
		client := &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}
		answer, err := client.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { answer.Body.Close() })
		return answer.StatusCode
	}
	given := 0
	for range connections - 1 {
		if ask("/live") == http.StatusOK {
			given++
		}
	}
	if given != streams || ask("/metrics") != http.StatusNotFound {
		t.Errorf("%d streams", given)
	}
}

// TestMoreOfAPod: the page of a pod shows its day, its ports and probes, its manifest and what of it does not run yet.
func TestMoreOfAPod(t *testing.T) {
	p := sickPod("")
	p.Spec.HostNetwork = true
	p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80}}
	p.Spec.Containers[0].ReadinessProbe = &v1.Probe{}
	p.Spec.Containers[0].Env = []v1.EnvVar{{Name: "<A>", Value: "\x1b[1m"}}
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "d", MountPath: "/<d>"}}
	p.Spec.Volumes = []v1.Volume{{Name: "d", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/\x1b"}}}}
	wanted := p.DeepCopy()
	wanted.UID = "u2"
	wanted.Spec.Containers[0].Image = "<new>"
	node := fakeNode{
		pods: []v1.Pod{p}, desired: manifest.Desired{Pods: map[pod.Key]*v1.Pod{pod.KeyOf(&p): wanted}},
		probes: []ProbeResult{{"c", "Readiness", "failed", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}},
	}
	spans := NewTimeline()
	spans.Day.Observe(&p, time.Now().Add(-time.Minute))
	spans.Day.Observe(wanted, time.Now())
	o := Options{Node: node, Timeline: spans, Log: slog.New(slog.DiscardHandler)}
	o.Metrics, o.Resource, o.Containers, o.Probes = http.NotFoundHandler(), http.NotFoundHandler(), http.NotFoundHandler(), http.NotFoundHandler()
	w := httptest.NewRecorder()
	NewHandler(o).ServeHTTP(w, httptest.NewRequest("GET", "http://node:10255/pod/default/web-n", nil))
	for _, want := range []string{
		`<h2>The last 10 minutes</h2>`, `aria-label="c: waiting `, `<rect class="mark edit"`, `<strong>edit</strong>: spec.containers[0].image: &#34;&lt;new&gt;&#34; instead of none</li>`,
		`<tr id="volume:d"><th scope="row" class="text">d</th><td class="text">hostPath<div class="more">Path: /\x1b</div></td><td class="text"><div>c:/&lt;d&gt; (rw)</div></td>`,
		`<tr><th scope="row" class="text">&lt;A&gt;</th><td class="text">\x1b[1m</td><td class="text">c</td></tr>`,
		`Port <a href="http://node:80/" rel="noreferrer">80</a>`, "Readiness: failed since 2026-01-02 03:04:05Z",
		`role="region" aria-label="Manifest">`, "image: &lt;new&gt;", "this does not run yet", `<td class="text">&#34;&lt;new&gt;&#34;</td>`,
	} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("no %s in %s", want, w.Body)
		}
	}
	w = httptest.NewRecorder()
	NewHandler(o).ServeHTTP(w, httptest.NewRequest("HEAD", "/pod/default/web-n/live", nil))
	for _, part := range []string{`"day":"`, `"manifest":"`} {
		if !strings.Contains(w.Body.String(), part) {
			t.Errorf("no %s in %s", part, w.Body)
		}
	}
}

// TestSources: the page shows where manifests come from, and which of these cannot be read.
func TestSources(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	node := fakeNode{machine: Machine{Sources: []Source{
		{Name: "/etc/pods", Read: at, Revision: "0123abcd", Pods: 3, Others: 2},
		{Name: "https://<b>", Since: at, Error: "<i>\x1b"}, {Name: "/wrong", Read: at, Wrong: 2},
	}}, health: []Check{{"relist", nil}, {"containerd", errors.New("away")}}, ready: []Check{{"relist", nil}}}
	w := httptest.NewRecorder()
	handler(node).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	for _, want := range []string{
		`<tr id="source:/etc/pods"><th scope="row" class="text">/etc/pods</th><td class="state text">Read</td><td class="wide">2026-01-02 03:04:05Z</td>` +
			`<td class="wide">0123abcd</td><td class="text wide">3 pods, 2 others</td>`,
		`class="ill"><th scope="row" class="text">https://&lt;b&gt;</th><td class="state text">Cannot be read since 2026-01-02 03:04:05Z: &lt;i&gt;\x1b</td>`,
		`class="ill"><th scope="row" class="text">/wrong</th><td class="state text">Read; 2 cannot be used</td>`,
		"<dt>Checks</dt><dd>relist passed; containerd failed</dd>",
	} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("no %s in %s", want, w.Body)
		}
	}
}

// counted counts how often it is asked what its pods use.
type counted struct {
	fakeNode
	asked int
}

func (c *counted) Summary(context.Context, bool) (*kubelet.Summary, error) {
	c.asked++
	return nil, errors.New("it cannot be read")
}

// TestUsedNow: however many pages are open, what pods use is read at most every few seconds.
func TestUsedNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &counted{}
		u := used{node: node}
		for range 60 {
			for range 3 { // pages
				if u.now() == nil {
					t.Fatal("nothing")
				}
			}
			time.Sleep(time.Second)
		}
		if node.asked != 20 {
			t.Errorf("asked %d times in a minute", node.asked)
		}
	})
}
