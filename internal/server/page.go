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
	"sync"
	"time"

	kubelet "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podrun.io/podrun/internal/server/chart"
	"podrun.io/podrun/internal/server/detail"
	"podrun.io/podrun/internal/server/rows"
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
	policy    string
	slots     streamSlots
	courses   *sparkline.Courses
	used      *used
	manifests *detail.Manifests
}

// usedFor is how long what pods use now is shown: to read it costs more than all else of a page.
const usedFor = 3 * time.Second

// used is what pods use now, for all pages that are open.
type used struct {
	node Node

	mu  sync.Mutex
	at  time.Time
	all *kubelet.Summary
}

// now returns what the machine and its pods use. What cannot be read is empty.
func (u *used) now() *kubelet.Summary {
	u.mu.Lock()
	defer u.mu.Unlock()
	if time.Since(u.at) < usedFor {
		return u.all
	}
	u.all, _ = u.node.Summary(context.Background(), false)
	if u.all == nil {
		u.all = &kubelet.Summary{}
	}
	u.at = time.Now()
	return u.all
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
		"plain":  summary.Plain,
	})
	return page{
		o: o, slots: slots, courses: &sparkline.Courses{History: o.History}, used: &used{node: o.Node},
		manifests: detail.NewManifests(),
		text:      template.Must(text.ParseFS(pageFiles, "page/*.html")),
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
		f := rows.FilterOf(r.URL.Query())
		p.live(w, r, func() (parts, error) { return p.listParts(f) })
	})
	mux.HandleFunc("/pod/{namespace}/{pod}", p.pod)
	mux.HandleFunc("/pod/{namespace}/{pod}/log", p.podLog)
	mux.HandleFunc("/pod/{namespace}/{pod}/live", func(w http.ResponseWriter, r *http.Request) {
		p.live(w, r, func() (parts, error) {
			whole, err := p.podParts(r)
			return parts{whole: whole}, err
		})
	})
}

// listData is what the page of all pods shows.
type listData struct {
	Verdict  verdict
	Node     nodeData
	Problems []string
	// Workloads are those that make pods.
	Workloads []overview.Workload
	Rows      []rows.Row
	Plugins   []pluginData
	Filter    rows.Filter
	// Of is the number of all pods, also of those that the filter does not show.
	Of         int
	Namespaces []rows.Option
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
func (p page) listData(f rows.Filter) (listData, error) {
	pods, err := p.o.Node.Pods()
	if err != nil {
		return listData{}, err
	}
	all, machine, used := p.used.now(), p.o.Node.Machine(), p.courses.Now()
	d := listData{
		Node: nodeOf(machine, &all.Node, used[""], pods, time.Now()), Plugins: pluginsOf(machine.Plugins),
		Rows: rows.Of(pods, all, used, f), Filter: f, Of: len(pods), Namespaces: f.NamespacesOf(pods),
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
	data, err := p.listData(rows.FilterOf(r.URL.Query()))
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
func (p page) listParts(f rows.Filter) (out parts, err error) {
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
		heading := ""
		if data.Rows[i].Heading != "" {
			if heading, err = p.render("heading", data.Rows[i]); err != nil {
				return parts{}, err
			}
		}
		out.order += heading + id + "\n"
		all.WriteString(heading + "\n" + out.rows[id])
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
