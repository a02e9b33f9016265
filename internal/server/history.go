package server

import (
	"context"
	"net/http"
	"sync"
	"time"

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
	// Pods are what pods have used, minute by minute.
	Pods []podSeries `json:"pods"`
}

// podSeries is a pod's series, with a value each minute.
type podSeries struct {
	Namespace string     `json:"namespace"`
	Pod       string     `json:"pod"`
	UID       string     `json:"uid"`
	Throttled []*float64 `json:"throttledMillisecondsPerSecond"`
	Received  []*float64 `json:"receivedBytesPerSecond"`
	Sent      []*float64 `json:"sentBytesPerSecond"`
	Disk      []*float64 `json:"writableLayerBytes"`
}

// StartHistory begins to keep what n has used, also while nobody looks at it if always, until ctx ends. wait waits for
// the end of that.
func StartHistory(ctx context.Context, n Node, always bool) (h *history.History, wait func()) {
	h = history.New(history.Options{
		Usage: func(ctx context.Context) (*kubelet.Summary, error) { return n.Summary(ctx, false) }, Pods: n.Totals,
		Always: always,
	})
	var running sync.WaitGroup
	running.Go(func() { h.Run(ctx) })
	return h, running.Wait
}

// usedBefore handles /api/v1/history: what containers and the machine have used in the last hour.
func usedBefore(w http.ResponseWriter, r *http.Request, o Options) {
	namespace, name := r.URL.Query().Get("namespace"), r.URL.Query().Get("pod")
	is := func(of history.Of) bool {
		return (namespace == "" || of.Namespace == namespace) && (name == "" || of.Pod == name)
	}
	all, pods, end := o.History.Hour(is)
	out := historyList{Interval: history.Every.Seconds(), Items: []historySeries{}, Pods: []podSeries{}}
	for _, s := range pods {
		out.Pods = append(out.Pods, podSeries{
			s.Namespace, s.Pod, s.UID, nullable(s.Throttled), nullable(s.Received), nullable(s.Sent), nullable(s.Disk),
		})
	}
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
