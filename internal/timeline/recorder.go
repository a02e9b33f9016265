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
	Pull    Kind = "pull"    // an image is fetched and unpacked
	Sandbox Kind = "sandbox" // the pod's namespaces and its network are created
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

// Begin records that something begins. end records its end, once.
func (r *Recorder) Begin(key pod.Key, name string, kind Kind, detail string) (end func(error)) {
	if r == nil {
		return func(error) {}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.add(key, Span{Container: name, Kind: kind, Detail: detail, Begin: time.Now()})
	return func(err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if s.End != nil {
			return
		}
		if err != nil {
			s.Error = cut(err.Error())
		}
		s.end(time.Now())
	}
}

// Begins records that something of one pod begins, and returns what records its end.
type Begins func(container string, kind Kind, detail string) (end func(error))

// Of returns Begin for one pod.
func (r *Recorder) Of(key pod.Key) Begins {
	return func(container string, kind Kind, detail string) func(error) {
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
