package server

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	kubelet "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podrun.io/podrun/internal/server/chart"
	"podrun.io/podrun/internal/server/sparkline"
	"podrun.io/podrun/internal/status/overview"
	"podrun.io/podrun/internal/status/summary"
)

//go:embed page
var pageFiles embed.FS

// refreshEvery is how often a page checks whether its pods have changed.
const refreshEvery = time.Second

// page serves the page of all pods and the page of each pod. Open pages update themselves.
type page struct {
	o    Options
	text *template.Template
	// policy is the Content-Security-Policy: a page uses its own style and script and no others.
	policy  string
	slots   streamSlots
	courses *sparkline.Courses
}

// newPage returns pages that are sent as one response, with style and script inside. A browser on
// the same machine cancels requests whenever the network of a pod is added or removed (Chromium's
// ERR_NETWORK_CHANGED), and a page without its script would not update itself.
func newPage(o Options, slots streamSlots) page {
	style, script := pageFile("page.css"), pageFile("page.js")+pageFile("log.js")
	text := template.New("").Funcs(template.FuncMap{
		"style":  func() template.CSS { return template.CSS(style) },
		"script": func() template.JS { return template.JS(script) },
		"time":   formatTime,
		"word":   chart.Word,
	})
	return page{
		o: o, slots: slots, courses: &sparkline.Courses{History: o.History},
		text: template.Must(text.ParseFS(pageFiles, "page/*.html")),
		policy: "default-src 'none'; style-src " + hashOf(style) + "; script-src " + hashOf(script) +
			"; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
	}
}

// pageFile returns a file that is embedded in the binary.
func pageFile(name string) string {
	text, err := pageFiles.ReadFile("page/" + name)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// hashOf returns the hash of a text in the notation of a Content-Security-Policy.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// register registers the handlers of the pages.
func (p page) register(mux *http.ServeMux) {
	mux.HandleFunc("/{$}", p.list)
	mux.HandleFunc("/live", func(w http.ResponseWriter, r *http.Request) {
		f := filterOf(r.URL.Query())
		p.live(w, r, func() (parts, error) { return p.listParts(f) })
	})
	mux.HandleFunc("/pod/{namespace}/{pod}", p.pod)
	mux.HandleFunc("/pod/{namespace}/{pod}/live", func(w http.ResponseWriter, r *http.Request) {
		p.live(w, r, func() (parts, error) {
			whole, err := p.podParts(r)
			return parts{whole: whole}, err
		})
	})
}

// row is a pod as the page of all pods shows it.
type row struct {
	Namespace, Name, State, Reason, IP, Manifest string
	Level                                        summary.Level
	Ready, Restarts, Age, CPU, Memory            string
	CPULine, MemoryLine                          sparkline.Line
	Containers                                   []string

	// What rows are sorted by.
	restarts    int
	created     time.Time // when podrun saw it first
	cpu, memory uint64
}

// listData is what the page of all pods shows.
type listData struct {
	Verdict  verdict
	Node     nodeData
	Problems []string
	// Workloads are those that make pods.
	Workloads []overview.Workload
	Rows      []row
	Plugins   []pluginData
	Filter    filter
	// Of is the number of all pods, also of those that the filter does not show.
	Of         int
	Namespaces []option
}

// Count says how many pods the page shows, if these are not all.
func (d listData) Count() string {
	if len(d.Rows) == d.Of {
		return ""
	}
	return fmt.Sprintf("%d of %d pods.", len(d.Rows), d.Of)
}

// pluginData is a plugin as the page shows it.
type pluginData struct {
	Name, Type, State string
	Well              bool
	Devices, Volumes  string
}

// listData returns what the page of all pods shows now.
func (p page) listData(f filter) (listData, error) {
	pods, err := p.o.Node.Pods()
	if err != nil {
		return listData{}, err
	}
	all, _ := p.o.Node.Summary(context.Background(), false) // what cannot be read stays empty
	if all == nil {
		all = &kubelet.Summary{}
	}
	machine := p.o.Node.Machine()
	used := p.courses.Now()
	d := listData{
		Node: nodeOf(machine, &all.Node, used[""], pods, time.Now()), Plugins: pluginsOf(machine.Plugins),
		Rows: rows(pods, all, used, f), Filter: f, Of: len(pods), Namespaces: f.namespacesOf(pods),
	}
	d.Workloads = overview.Of(p.o.Node.Desired(), pods)
	for i, w := range d.Workloads {
		d.Workloads[i].Reason = summary.Plain(w.Reason)
	}
	for _, text := range p.o.Node.Problems() {
		d.Problems = append(d.Problems, summary.Plain(text))
	}
	checks := append(p.o.Node.Health(), p.o.Node.Ready()...)
	d.Verdict, d.Node.Checks = verdictOf(d, pods, checks), checksOf(checks)
	return d, nil
}

// pluginsOf returns the rows of plugins. A driver has no devices, and a device plugin no volumes.
func pluginsOf(all []Plugin) (out []pluginData) {
	for _, p := range all {
		d := pluginData{Name: p.Name, Type: p.Type, State: "Connected", Well: p.Connected}
		if !p.Connected {
			d.State = "Disconnected"
			if at := formatTime(p.Since); at != "" {
				d.State += " since " + at
			}
		}
		if p.Type == "DevicePlugin" {
			d.Devices = fmt.Sprintf("%d of %d healthy, %d used", p.Healthy, p.Devices, p.Used)
			d.Well = d.Well && p.Healthy == p.Devices
		} else {
			d.Volumes = strconv.Itoa(p.Volumes)
		}
		out = append(out, d)
	}
	return out
}

// rows returns the current rows of the pods that a filter shows.
func rows(pods []v1.Pod, used *kubelet.Summary, before map[string]*sparkline.Course, f filter) []row {
	of := usageOf(used)
	out := []row{}
	for i := range pods {
		uid := string(pods[i].UID)
		if r := rowOf(&pods[i], of[uid], before[uid], time.Now()); f.shows(&pods[i], &r) {
			out = append(out, r)
		}
	}
	f.sort(out)
	return out
}

// usageOf returns the resource usage of pods, by UID. Where it cannot be read, the columns stay empty.
func usageOf(all *kubelet.Summary) map[string]kubelet.PodStats {
	out := map[string]kubelet.PodStats{}
	if all != nil {
		for _, one := range all.Pods {
			out[one.PodRef.UID] = one
		}
	}
	return out
}

func rowOf(p *v1.Pod, taken kubelet.PodStats, before *sparkline.Course, now time.Time) row {
	s := summary.Of(p)
	r := row{
		Namespace: p.Namespace, Name: p.Name,
		State: s.Text, Reason: summary.Plain(summary.Why(p, now)), IP: p.Status.PodIP,
		Manifest: summary.Plain(p.Annotations["podrun.io/manifest"]),
		Ready:    fmt.Sprintf("%d/%d", s.Ready, s.Containers), Restarts: restarts(s, now),
		Level: s.Level(), restarts: s.Restarts,
		CPU:    ofLimit(cores(taken.CPU), podLimit(p, v1.ResourceCPU)),
		Memory: ofLimit(mebibytes(taken.Memory), podLimit(p, v1.ResourceMemory)),

		CPULine:    before.CPU(limitOf(p, v1.ResourceCPU)),
		MemoryLine: before.Memory(limitOf(p, v1.ResourceMemory)),
	}
	if p.Status.StartTime != nil {
		r.created = p.Status.StartTime.Time
		r.Age = ago(r.created, now)
	}
	if taken.CPU != nil && taken.CPU.UsageNanoCores != nil {
		r.cpu = *taken.CPU.UsageNanoCores
	}
	if taken.Memory != nil && taken.Memory.WorkingSetBytes != nil {
		r.memory = *taken.Memory.WorkingSetBytes
	}
	for _, c := range summary.Roles(p) {
		r.Containers = append(r.Containers, c.Container.Name)
	}
	return r
}

// restarts says how often a pod's containers have started again, when they did so last, and why.
func restarts(s summary.Summary, now time.Time) string {
	if s.LastRestart.IsZero() {
		return strconv.Itoa(s.Restarts)
	}
	return fmt.Sprintf("%d (%s ago, %s)", s.Restarts, ago(s.LastRestart, now), summary.Plain(s.LastEnd))
}

// cores formats CPU usage in millicores; "" if it is not known.
func cores(s *kubelet.CPUStats) string {
	if s == nil || s.UsageNanoCores == nil {
		return ""
	}
	return fmt.Sprintf("%dm", *s.UsageNanoCores/1e6)
}

func mebibytes(s *kubelet.MemoryStats) string {
	if s == nil || s.WorkingSetBytes == nil {
		return ""
	}
	return sparkline.Bytes(*s.WorkingSetBytes)
}

// ofLimit adds a limit to what is used; limit is nil if there is none.
func ofLimit(used string, limit *quantity.Quantity) string {
	if limit == nil || used == "" {
		return used
	}
	return used + " of " + limit.String()
}

// podLimit returns the limit of a pod: its own, or the sum of those of its containers if each has one.
func podLimit(p *v1.Pod, name v1.ResourceName) *quantity.Quantity {
	if p.Spec.Resources != nil {
		if own, is := p.Spec.Resources.Limits[name]; is {
			return &own
		}
	}
	var sum quantity.Quantity
	for _, role := range summary.Roles(p) {
		if role.Init && role.Kind() != "sidecar" {
			continue
		}
		limit := containerLimit(role.Container, name)
		if limit == nil {
			return nil
		}
		sum.Add(*limit)
	}
	return &sum
}

// containerLimit returns a limit of a container; nil if it has none.
func containerLimit(c *v1.Container, name v1.ResourceName) *quantity.Quantity {
	if limit, is := c.Resources.Limits[name]; is {
		return &limit
	}
	return nil
}

// render executes the template with the name.
func (p page) render(name string, data any) (string, error) {
	var out bytes.Buffer
	err := p.text.ExecuteTemplate(&out, name, data)
	return out.String(), err
}

// send responds with a page.
func (p page) send(w http.ResponseWriter, code int, name string, data any, err error) {
	text := ""
	if err == nil {
		text, err = p.render(name, data)
	}
	if err != nil {
		p.o.Log.Error("answering HTTP", "what", "page", "err", err)
		http.Error(w, "the pods cannot be read: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text)) // an error only means that the client has disconnected
}

// list handles the page of all pods.
func (p page) list(w http.ResponseWriter, r *http.Request) {
	data, err := p.listData(filterOf(r.URL.Query()))
	p.send(w, http.StatusOK, "list", data, err)
}

// parts are the parts of a page that change, by element ID.
type parts struct {
	whole map[string]string
	// rows are those of the table in the part "pods", and order their IDs: as long as that is the same, rows are sent
	// one by one.
	rows  map[string]string
	order string
}

// since returns what a browser that has shown before must be sent.
func (p parts) since(before parts) map[string]string {
	out := map[string]string{}
	for id, html := range p.whole {
		if old, was := before.whole[id]; !was || old != html && (id != "pods" || p.order != before.order) {
			out[id] = html
		}
	}
	if _, all := out["pods"]; all {
		return out
	}
	for id, html := range p.rows {
		if before.rows[id] != html {
			out[id] = html
		}
	}
	return out
}

// listParts returns the parts of the page of all pods that change.
func (p page) listParts(f filter) (out parts, err error) {
	data, err := p.listData(f)
	if err != nil {
		return parts{}, err
	}
	out = parts{whole: map[string]string{}, rows: map[string]string{}}
	ids := []string{"verdict", "node", "problems", "plugins", "sources", "workloads", "count"}
	if len(data.Rows) == 0 {
		ids = append(ids, "pods")
	}
	for _, id := range ids {
		if out.whole[id], err = p.render(id, data); err != nil {
			return parts{}, err
		}
	}
	var all strings.Builder
	for i := range data.Rows {
		id := "row:" + data.Rows[i].Namespace + "/" + data.Rows[i].Name
		if out.rows[id], err = p.render("row", data.Rows[i]); err != nil {
			return parts{}, err
		}
		out.order += id + "\n"
		all.WriteString("\n" + out.rows[id])
	}
	if len(data.Rows) > 0 {
		out.whole["pods"] = all.String()
	}
	return out, nil
}

// live sends the parts of a page that have changed whenever some have, as server-sent events.
func (p page) live(w http.ResponseWriter, r *http.Request, now func() (parts, error)) {
	end, ok := p.slots.begin(w, r)
	if !ok {
		return
	}
	defer end()
	w.Header().Set("Content-Type", "text/event-stream")
	out := &flushWriter{w: w, control: http.NewResponseController(w), left: -1}
	ctx, cancel := withStreamTime(r)
	defer cancel()
	var last parts
	for {
		text := []byte(":\n\n") // fails if the client has disconnected
		all, err := now()
		if err == nil {
			if changed := all.since(last); len(changed) > 0 {
				var data []byte
				data, err = json.Marshal(changed) // keys are sorted
				text = fmt.Appendf(nil, "data: %s\n\n", data)
			}
		}
		if err != nil {
			p.o.Log.Debug("updating a page failed", "err", err)
			all, text = last, []byte(":\n\n")
		}
		if _, err := out.Write(text); err != nil {
			return
		}
		if last = all; r.Method == http.MethodHead {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(refreshEvery):
		}
	}
}

// formatTime formats a time for the pages; "" for the zero time.
func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// reasonWithMessage joins a reason and its message, either of which may be empty.
func reasonWithMessage(reason, message string) string {
	if reason == "" || message == "" {
		return cmp.Or(reason, message)
	}
	return reason + ": " + message
}
