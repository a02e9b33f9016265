package server

import (
	"context"
	"net/http"
	"strconv"
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

// The size of a sparkline, in its own units. Each point is the highest of some samples.
const (
	points      = 60
	pointWidth  = 2
	sparkHeight = 20
	perPoint    = history.Kept / points
)

// course is what something has used in the last hour, as a sparkline shows it; negative: not known.
type course struct{ cpu, memory [points]float64 }

// add adds what a container has used to what the others have.
func (c *course) add(cpu, memory []float64) {
	sum := func(into *[points]float64, samples []float64) {
		for i := range points {
			highest := -1.0
			for n := range perPoint { // the newest sample is the last
				at := len(samples) - (points-i)*perPoint + n
				if at >= 0 {
					highest = max(highest, samples[at])
				}
			}
			if highest >= 0 {
				into[i] = max(into[i], 0) + highest
			}
		}
	}
	sum(&c.cpu, cpu)
	sum(&c.memory, memory)
}

func newCourse() *course {
	c := &course{}
	for i := range points {
		c.cpu[i], c.memory[i] = -1, -1
	}
	return c
}

// courses are the courses of the machine (""), of pods by UID, and of containers by UID/NAME. They change when there is
// another sample.
type courses struct {
	history *history.History
	mu      sync.Mutex
	at      time.Time
	of      map[string]*course
}

// now returns the courses. Who calls it looks at them.
func (c *courses) now() map[string]*course {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.history.Watch(); c.of != nil && at.Equal(c.at) {
		return c.of
	}
	var all []history.Series
	all, c.at = c.history.Samples(func(history.Of) bool { return true })
	c.of = map[string]*course{}
	for _, s := range all {
		keys := []string{s.UID}
		if s.UID != "" {
			keys = append(keys, s.UID+"/"+s.Container)
		}
		for _, key := range keys {
			if c.of[key] == nil {
				c.of[key] = newCourse()
			}
			c.of[key].add(s.CPU, s.Memory)
		}
	}
	return c.of
}

// sparkline is a course as a page draws it. Without a sample it draws nothing.
type sparkline struct {
	Line, Limit, Label string
}

// cpuLine and memoryLine return the sparklines of a course, which may be nil. limit is 0 if there is none.
func (c *course) cpuLine(limit float64) sparkline {
	if c == nil {
		return sparkline{}
	}
	return lineOf("CPU", c.cpu[:], limit, func(v float64) string { return strconv.Itoa(int(v)) + "m" })
}

func (c *course) memoryLine(limit float64) sparkline {
	if c == nil {
		return sparkline{}
	}
	return lineOf("Memory", c.memory[:], limit, func(v float64) string { return formatBytes(uint64(v)) })
}

func lineOf(what string, values []float64, limit float64, format func(float64) string) (s sparkline) {
	highest := -1.0
	for _, v := range values {
		highest = max(highest, v)
	}
	if highest < 0 {
		return s
	}
	top := max(highest, limit, 1)
	y := func(v float64) int { return sparkHeight - 1 - int(v/top*(sparkHeight-2)+0.5) }
	var line []byte
	drawn := false
	for i, v := range values {
		if v < 0 {
			drawn = false
			continue
		}
		command := byte('L')
		if !drawn {
			command = 'M'
		}
		line = append(line, command)
		line = strconv.AppendInt(line, int64(i*pointWidth), 10)
		line = append(line, ' ')
		line = strconv.AppendInt(line, int64(y(v)), 10)
		if !drawn { // a point alone is seen too
			line = append(line, 'h', '1')
		}
		drawn = true
	}
	s.Line, s.Label = string(line), what+" in the last hour: at most "+format(highest)
	if limit > 0 {
		s.Limit = "M0 " + strconv.Itoa(y(limit)) + "H" + strconv.Itoa(points*pointWidth)
		s.Label += ", limit " + format(limit)
	}
	return s
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
