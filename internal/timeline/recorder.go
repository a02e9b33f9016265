// Package timeline records what the start of pods spends its time on, and draws it: pulls, sandboxes, volumes, starts,
// runs, probes, back-offs and waiting are spans of time. The spans are kept in memory, so many at most, and cost
// nothing while nothing happens. No decision depends on them.
//
// Begin reading with Recorder; Path finds the spans that the end waited for.
package timeline

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/timeline/day"
)

// Kind is what a span of time was spent on.
type Kind string

// The kinds of spans.
const (
	Pull    Kind = "pull"    // an image is fetched; its first layers may be unpacked meanwhile
	Unpack  Kind = "unpack"  // an image has been fetched, and the rest of it is unpacked
	Sandbox Kind = "sandbox" // the pod's namespaces are created
	Network Kind = "network" // the pod is connected to its network
	Volumes Kind = "volumes" // the pod's volumes are made ready
	Start   Kind = "start"   // a container is created and started
	Run     Kind = "run"     // a container ran until its end
	Probe   Kind = "probe"   // a container runs, and has not been ready yet
	Backoff Kind = "backoff" // a container waits because of an earlier failure
	Waiting Kind = "waiting" // a container waits for something else, which Detail says
)

// Span is what one thing took.
type Span struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	// Container is empty for what is the whole pod's.
	Container string    `json:"container,omitempty"`
	Kind      Kind      `json:"kind"`
	Detail    string    `json:"detail,omitempty"`
	Begin     time.Time `json:"begin"`
	// End is nil as long as it goes on.
	End   *time.Time `json:"end"`
	Error string     `json:"error,omitempty"`
	// Critical reports that the end waited for it.
	Critical bool `json:"critical"`
}

// OfPull reports that a span is a part of the pull of an image.
func (s Span) OfPull() bool { return s.Kind == Pull || s.Kind == Unpack }

// What is kept at most, of a pod and of all. The oldest spans are dropped.
const (
	maxPod = 200
	maxAll = 20000
	// maxText is the most bytes of a detail or an error.
	maxText = 300
)

// Recorder keeps spans. Its methods may be called by several goroutines; those of a nil Recorder do nothing.
type Recorder struct {
	// Day has the states of the last 24 hours.
	Day   *day.Recorder
	began time.Time

	mu   sync.Mutex
	all  []*Span // in the order of their recording
	of   map[pod.Key]int
	pods map[pod.Key]map[string]*container // what was observed last
}

// New returns a Recorder without spans.
func New() *Recorder {
	return &Recorder{
		Day: day.New(), began: time.Now(), of: map[pod.Key]int{}, pods: map[pod.Key]map[string]*container{},
	}
}

// Begin records that something begins.
func (r *Recorder) Begin(key pod.Key, name string, kind Kind, detail string) *Open {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	o := &Open{r: r, now: r.add(key, Span{Container: name, Kind: kind, Detail: detail, Begin: time.Now()})}
	c := r.container(key, name)
	switch kind {
	case Pull:
		c.pull = o
	case Start: // what it waited for is over, although its status says so only later
		if c.waits != nil && (c.waits.Kind == Waiting || c.waits.Kind == Backoff) {
			c.waits.end(o.now.Begin)
			c.waits = nil
		}
	}
	return o
}

// Open is what goes on: one span, or several, each of which begins where the one before ends. Its methods may be called
// by several goroutines; those of nil do nothing.
type Open struct {
	r           *Recorder
	before, now *Span
}

// End records the end, once.
func (o *Open) End(err error) {
	if o == nil {
		return
	}
	o.r.mu.Lock()
	defer o.r.mu.Unlock()
	if o.now.End != nil {
		return
	}
	if err != nil {
		o.now.Error = cut(err.Error())
	}
	o.now.end(time.Now())
}

// Becomes records that from a time on it is of another kind. If it is of that kind already, that began only then.
func (o *Open) Becomes(kind Kind, detail string, at time.Time) {
	if o == nil {
		return
	}
	o.r.mu.Lock()
	defer o.r.mu.Unlock()
	switch {
	case o.now.End != nil:
	case o.now.Kind != kind:
		o.before = o.now
		o.before.end(at)
		next := Span{Container: o.now.Container, Kind: kind, Detail: detail, Begin: *o.before.End}
		o.now = o.r.add(o.before.key(), next)
	case o.before != nil && at.After(o.now.Begin):
		o.before.end(at)
		o.now.Begin = at
	}
}

// WaitsFor records for what it waits, which becomes its detail unless it has ended.
func (o *Open) WaitsFor(what string) {
	if o == nil {
		return
	}
	o.r.mu.Lock()
	defer o.r.mu.Unlock()
	if o.now.End == nil {
		o.now.Detail = cut(what)
	}
}

// Begins records that something of one pod begins.
type Begins func(container string, kind Kind, detail string) *Open

// Of returns Begin for one pod.
func (r *Recorder) Of(key pod.Key) Begins {
	return func(container string, kind Kind, detail string) *Open {
		return r.Begin(key, container, kind, detail)
	}
}

// Spans returns the spans of which keep is true, in the order of their begin.
func (r *Recorder) Spans(keep func(Span) bool) []Span {
	out := []Span{}
	if r == nil {
		return out
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.all {
		if keep(*s) {
			out = append(out, *s)
		}
	}
	slices.SortStableFunc(out, func(a, b Span) int { return a.Begin.Compare(b.Begin) })
	return out
}

// ServeHTTP responds with the spans as JSON; ?namespace= and ?pod= select.
func (r *Recorder) ServeHTTP(w http.ResponseWriter, of *http.Request) {
	namespace, name := of.URL.Query().Get("namespace"), of.URL.Query().Get("pod")
	text, err := JSON(r.Spans(func(s Span) bool {
		return (namespace == "" || s.Namespace == namespace) && (name == "" || s.Pod == name)
	}))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text) // an error only means that the client has disconnected
}

// add adds a span of a pod. The caller holds mu.
func (r *Recorder) add(key pod.Key, s Span) *Span {
	if r.of[key] >= maxPod {
		r.drop(slices.IndexFunc(r.all, func(s *Span) bool { return s.key() == key }))
	}
	if len(r.all) >= maxAll {
		r.drop(0)
	}
	s.Namespace, s.Pod, s.Detail = key.Namespace, key.Name, cut(s.Detail)
	r.all = append(r.all, &s)
	r.of[key]++
	return &s
}

// drop drops a span. The caller holds mu.
func (r *Recorder) drop(at int) {
	key := r.all[at].key()
	r.all = slices.Delete(r.all, at, at+1)
	if r.of[key]--; r.of[key] == 0 {
		delete(r.of, key)
	}
}

func (s *Span) key() pod.Key { return pod.Key{Namespace: s.Namespace, Name: s.Pod} }

// end sets the end of a span, which is never before its begin: the clock may have been set.
func (s *Span) end(at time.Time) {
	if at.Before(s.Begin) {
		at = s.Begin
	}
	s.End = &at
}

func cut(text string) string {
	if len(text) > maxText {
		return text[:maxText] + "..."
	}
	return text
}
