package server

import (
	"context"
	"net/http"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubelet "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podrun.io/podrun/internal/stats/history"
)

// historySeries is a series as /api/v1/history has it. A sample that is missing is null.
type historySeries struct {
	Namespace string     `json:"namespace,omitempty"`
	Pod       string     `json:"pod,omitempty"`
	UID       string     `json:"uid,omitempty"`
	Container string     `json:"container,omitempty"`
	CPU       []*float64 `json:"cpuMillicores"`
	Memory    []*float64 `json:"memoryBytes"`
}

// historyList is the response of /api/v1/history.
type historyList struct {
	// Interval is the time between two samples, in seconds, and End the time of the newest, which is the last of each
	// series; nil: there is none yet.
	Interval float64         `json:"intervalSeconds"`
	End      *time.Time      `json:"end"`
	Items    []historySeries `json:"items"`
}

// StartHistory begins to keep what n has used, also while nobody looks at it if always, until ctx ends. wait waits for
// the end of that.
func StartHistory(ctx context.Context, n Node, always bool) (h *history.History, wait func()) {
	h = history.New(history.Options{
		Usage: func(ctx context.Context) (*kubelet.Summary, error) { return n.Summary(ctx, false) }, Always: always,
	})
	var running sync.WaitGroup
	running.Go(func() { h.Run(ctx) })
	return h, running.Wait
}

// usedBefore handles /api/v1/history: what containers and the machine have used in the last hour.
func usedBefore(w http.ResponseWriter, r *http.Request, o Options) {
	namespace, name := r.URL.Query().Get("namespace"), r.URL.Query().Get("pod")
	all, end := o.History.Samples(func(of history.Of) bool {
		return (namespace == "" || of.Namespace == namespace) && (name == "" || of.Pod == name)
	})
	out := historyList{Interval: history.Every.Seconds(), Items: []historySeries{}}
	if !end.IsZero() {
		out.End = &end
	}
	for _, s := range all {
		out.Items = append(out.Items, historySeries{
			s.Namespace, s.Pod, s.UID, s.Container, nullable(s.CPU), nullable(s.Memory),
		})
	}
	respond(w, o, "history", out, nil)
}

func nullable(samples []float64) []*float64 {
	out := make([]*float64, len(samples))
	for i := range samples {
		if samples[i] >= 0 {
			out[i] = &samples[i]
		}
	}
	return out
}

// limitOf returns a pod's limit; 0 if it has none.
func limitOf(p *v1.Pod, name v1.ResourceName) float64 { return amount(podLimit(p, name), name) }

// amount returns how much a limit is: of the CPU in thousandths of a processor, of memory in bytes; 0 if there is none.
func amount(limit *resource.Quantity, name v1.ResourceName) float64 {
	switch {
	case limit == nil:
		return 0
	case name == v1.ResourceCPU:
		return float64(limit.MilliValue())
	}
	return float64(limit.Value())
}
