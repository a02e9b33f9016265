// Package day keeps which states the containers of pods had in the last 24 hours, and what happened to the pods:
// restarts, edits and roll-backs. It is kept in memory, so much at most, and costs nothing while nothing changes. No
// decision depends on it.
//
// Begin reading at Recorder.
package day

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/edits"
	"podrun.io/podrun/internal/pod"
)

// Kept is how long is kept what has ended.
const Kept = 24 * time.Hour

// What is kept at most of a container and of a pod, the newest.
const (
	maxBars  = 200
	maxMarks = 100
	// maxText is the most bytes of a text.
	maxText = 300
)

// State is the state of a container.
type State string

// The states of containers.
const (
	Waiting  State = "waiting"
	Running  State = "running"   // and ready
	NotReady State = "not-ready" // it runs, and its probes fail or have not succeeded yet
	Ended    State = "ended"     // with exit code 0
	Failed   State = "failed"    // with another one
)

// Bar is a time in which a container was in one state.
type Bar struct {
	State  State
	Begin  time.Time
	End    time.Time // zero: it is so still
	Detail string    // the reason, or the exit code
}

// Kind is a kind of what happens to a pod.
type Kind string

// The kinds of marks.
const (
	Exit     Kind = "exit" // a run of a container has ended
	Restart  Kind = "restart"
	OOM      Kind = "oom" // a container has used more memory than it may, and was killed
	Edit     Kind = "edit"
	RollBack Kind = "roll-back"
)

// Mark is something that happened to a pod.
type Mark struct {
	At   time.Time
	Kind Kind
	Text string
}

// Container is what is kept of a container, the oldest bar first.
type Container struct {
	Name string
	Bars []Bar
}

// Pod is what is kept of a pod: its containers as the manifest has them, and its marks, the oldest first.
type Pod struct {
	Containers []Container
	Marks      []Mark
}

// Recorder keeps the pods. Its methods may be called by several goroutines.
type Recorder struct {
	mu   sync.Mutex
	pods map[pod.Key]*kept
}

// kept is a pod, and what was observed of it last.
type kept struct {
	Pod
	uid        pod.UID
	spec       *v1.PodSpec
	config     string
	rolledBack string
	restarts   map[string]int32
	ended      map[string]string // the instance of a container whose end was marked last
}

// New returns a Recorder without pods.
func New() *Recorder { return &Recorder{pods: map[pod.Key]*kept{}} }

// Observe records a pod's status; now is its time.
func (r *Recorder) Observe(p *v1.Pod, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := pod.KeyOf(p)
	k := r.pods[key]
	first := k == nil
	if first {
		k = &kept{restarts: map[string]int32{}, ended: map[string]string{}}
		r.pods[key] = k
	}
	k.edited(p, first, now)
	var containers []Container
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		one := k.container(s.Name)
		if one == nil {
			one = &Container{Name: s.Name}
			one.earlier(&s)
		}
		one.observe(&s, now)
		k.mark(&s, first, now)
		containers = append(containers, *one)
	}
	k.Containers = containers
	k.forget(now.Add(-Kept))
}

// Gone records that nothing is left of a pod: nothing is kept of it.
func (r *Recorder) Gone(key pod.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pods, key)
}

// Of returns what is kept of a pod.
func (r *Recorder) Of(key pod.Key) Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.pods[key]
	if k == nil {
		return Pod{}
	}
	out := Pod{Marks: slices.Clone(k.Marks)}
	for _, c := range k.Containers {
		out.Containers = append(out.Containers, Container{Name: c.Name, Bars: slices.Clone(c.Bars)})
	}
	return out
}

func (k *kept) container(name string) *Container {
	for i := range k.Containers {
		if k.Containers[i].Name == name {
			return &k.Containers[i]
		}
	}
	return nil
}

// edited marks what has changed of the manifest that the pod runs from. What was so at first is not news.
func (k *kept) edited(p *v1.Pod, first bool, now time.Time) {
	config, back := p.Annotations[manifest.AnnotationConfig], p.Annotations[manifest.AnnotationRolledBack]
	switch {
	case first:
	case back != "" && back != k.rolledBack:
		k.add(Mark{now, RollBack, back})
	case p.UID != k.uid || config != k.config:
		k.add(Mark{now, Edit, k.edits(p)})
	}
	if p.UID != k.uid {
		clear(k.restarts)
	}
	k.uid, k.config, k.rolledBack, k.spec = p.UID, config, back, &p.Spec
}

// edits says what an edit has changed of a pod's specification.
func (k *kept) edits(p *v1.Pod) string {
	all := edits.Of(k.spec, &p.Spec)
	if len(all) == 0 {
		return "The manifest was edited, or what it refers to."
	}
	text := fmt.Sprintf("spec.%s: %s instead of %s", all[0].Field, cmp.Or(all[0].New, "none"), cmp.Or(all[0].Old, "none"))
	if more := len(all) - 1; more > 0 {
		text = fmt.Sprintf("%s, and %d more", cut(text), more)
	}
	return text
}

// mark marks how a container's runs have ended, and its restarts. What is known at first are not all of them.
func (k *kept) mark(s *v1.ContainerStatus, first bool, now time.Time) {
	ended := cmp.Or(s.State.Terminated, s.LastTerminationState.Terminated)
	again := s.RestartCount > k.restarts[s.Name]
	k.restarts[s.Name] = s.RestartCount
	text := fmt.Sprintf("started again, restart %d", s.RestartCount)
	if ended != nil && ended.ContainerID != k.ended[s.Name] {
		k.ended[s.Name] = ended.ContainerID
		m := Mark{cmp.Or(ended.FinishedAt.Time, now), Exit, s.Name + ": " + textOf(ended)}
		if again && s.State.Running != nil {
			m.Kind, m.Text = Restart, m.Text+"; "+text
		}
		if ended.Reason == "OOMKilled" {
			m.Kind = OOM
		}
		k.add(m)
		return
	}
	if again && !first && s.State.Running != nil {
		k.add(Mark{cmp.Or(s.State.Running.StartedAt.Time, now), Restart, s.Name + " has " + text})
	}
}

func (k *kept) add(m Mark) {
	m.Text = cut(m.Text)
	k.Marks = append(k.Marks, m)
	slices.SortStableFunc(k.Marks, func(a, b Mark) int { return a.At.Compare(b.At) })
	if over := len(k.Marks) - maxMarks; over > 0 {
		k.Marks = slices.Delete(k.Marks, 0, over)
	}
}

// forget forgets what ended before a time.
func (k *kept) forget(before time.Time) {
	k.Marks = slices.DeleteFunc(k.Marks, func(m Mark) bool { return m.At.Before(before) })
	for i := range k.Containers {
		c := &k.Containers[i]
		c.Bars = slices.DeleteFunc(c.Bars, func(b Bar) bool { return !b.End.IsZero() && b.End.Before(before) })
	}
}

// observe records the state of a container. Where its status does not say when it began, it began now.
func (c *Container) observe(s *v1.ContainerStatus, now time.Time) {
	next, is := barOf(s, now)
	if !is {
		return
	}
	if n := len(c.Bars); n > 0 && c.Bars[n-1].End.IsZero() {
		last := &c.Bars[n-1]
		again := runs(last.State) && runs(next.State) && next.Begin.After(last.Begin) // another instance
		if last.State == next.State && last.Detail == next.Detail && !again {
			return
		}
		if !next.Begin.After(last.Begin) {
			next.Begin = now
		}
		last.End = later(next.Begin, last.Begin)
		if of := s.LastTerminationState.Terminated; again && of != nil && of.FinishedAt.After(last.Begin) &&
			of.FinishedAt.Time.Before(last.End) {
			last.End = of.FinishedAt.Time
		}
	}
	c.add(next)
}

func (c *Container) add(b Bar) {
	b.Detail = cut(b.Detail)
	c.Bars = append(c.Bars, b)
	if over := len(c.Bars) - maxBars; over > 0 {
		c.Bars = slices.Delete(c.Bars, 0, over)
	}
}

func runs(s State) bool { return s == Running || s == NotReady }

// barOf returns the state of a container that is so still; is reports that there is one.
func barOf(s *v1.ContainerStatus, now time.Time) (b Bar, is bool) {
	switch {
	case s.State.Running != nil:
		b = Bar{State: Running, Begin: cmp.Or(s.State.Running.StartedAt.Time, now)}
		if !s.Ready {
			b.State = NotReady
		}
	case s.State.Terminated != nil:
		t := s.State.Terminated
		b = Bar{State: Failed, Begin: cmp.Or(t.FinishedAt.Time, now), Detail: textOf(t)}
		if t.ExitCode == 0 {
			b.State = Ended
		}
	case s.State.Waiting != nil:
		b = Bar{State: Waiting, Begin: now, Detail: s.State.Waiting.Reason}
		if t := s.LastTerminationState.Terminated; t != nil && !t.FinishedAt.IsZero() {
			b.Begin = t.FinishedAt.Time
		}
	default:
		return b, false
	}
	return b, true
}

// earlier adds the runs that a status has, and that an earlier podrun observed.
func (c *Container) earlier(s *v1.ContainerStatus) {
	for _, t := range []*v1.ContainerStateTerminated{s.LastTerminationState.Terminated, s.State.Terminated} {
		if t != nil && !t.StartedAt.IsZero() && !t.FinishedAt.IsZero() {
			c.add(Bar{State: Running, Begin: t.StartedAt.Time, End: t.FinishedAt.Time})
		}
	}
}

func textOf(t *v1.ContainerStateTerminated) string {
	text := fmt.Sprintf("exit code %d", t.ExitCode)
	if t.Reason != "" {
		text = t.Reason + ", " + text
	}
	return text
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func cut(text string) string {
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "..."
	}
	return text
}
