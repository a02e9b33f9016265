package api

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	kubelet "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

//go:embed page.html
var pageText string

// lookEvery is how often it is looked for a page whether its pods have changed.
const lookEvery = 2 * time.Second

// page is the page that shows the pods, and goes on showing them.
type page struct {
	o    Options
	text *template.Template
}

func newPage(o Options) page { return page{o, template.Must(template.New("page").Parse(pageText))} }

// row is a pod as the page shows it.
type row struct {
	Namespace, Name, Phase, Reason, IPs, Manifest string
	Well                                          bool
	Ready, Containers                             int
	Restarts                                      int32
	CPU, Memory                                   string
	Of                                            []string
}

// rows reads how the pods are.
func (p page) rows() ([]row, error) {
	pods, err := p.o.Node.Pods()
	if err != nil {
		return nil, err
	}
	taken := map[string]kubelet.PodStats{}
	if all, _ := p.o.Node.Summary(); all != nil { // without, the columns stay empty
		for _, one := range all.Pods {
			taken[one.PodRef.UID] = one
		}
	}
	out := []row{}
	for i := range pods {
		out = append(out, rowOf(&pods[i], taken[string(pods[i].UID)]))
	}
	return out, nil
}

func rowOf(p *v1.Pod, taken kubelet.PodStats) row {
	r := row{
		Namespace: p.Namespace, Name: p.Name, Phase: string(p.Status.Phase), Containers: len(p.Spec.Containers), IPs: p.Status.PodIP,
		Reason: p.Status.Reason, Manifest: p.Annotations["podrun.io/manifest"], Well: p.Status.Phase == v1.PodSucceeded,
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		r.Restarts += c.RestartCount
		if w := c.State.Waiting; w != nil && w.Message != "" {
			r.Reason = cmp.Or(r.Reason, w.Reason+": "+w.Message)
		}
		r.Of = append(r.Of, c.Name)
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.Ready {
			r.Ready++
		}
	}
	r.Well = r.Well || r.Ready == r.Containers
	if taken.CPU != nil && taken.CPU.UsageNanoCores != nil {
		r.CPU = fmt.Sprintf("%dm", *taken.CPU.UsageNanoCores/1e6)
	}
	if taken.Memory != nil && taken.Memory.WorkingSetBytes != nil {
		r.Memory = fmt.Sprintf("%dMi", *taken.Memory.WorkingSetBytes>>20)
	}
	return r
}

// render writes the part of the page that is defined under name.
func (p page) render(name string) ([]byte, error) {
	rows, err := p.rows()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = p.text.ExecuteTemplate(&out, name, rows)
	return out.Bytes(), err
}

// whole answers with the page.
func (p page) whole(w http.ResponseWriter, _ *http.Request) {
	text, err := p.render("page")
	if err != nil {
		p.o.Log.Error("answering HTTP", "what", "page", "why", err)
		http.Error(w, "the pods cannot be told: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(text) // a client that went away is no concern
}

// live answers with the page's rows whenever they change, as server-sent events.
func (p page) live(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	out := &patient{w: w, control: http.NewResponseController(w), left: -1}
	ctx, cancel := untilLeaving(r.Context())
	defer cancel()
	var last []byte
	for {
		now, err := p.render("rows")
		if err != nil {
			p.o.Log.Debug("the page is not told anew", "why", err)
			now = last
		}
		data, err := json.Marshal(string(now))
		text := fmt.Sprintf("data: %s\n\n", data)
		if last != nil && bytes.Equal(now, last) {
			text = ":\n\n" // tells a client that went away
		}
		if err != nil {
			return
		}
		if _, err := out.Write([]byte(text)); err != nil {
			return
		}
		last = now
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookEvery):
		}
	}
}
