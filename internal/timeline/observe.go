package timeline

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// container is what was observed of a container.
type container struct {
	waits   *Span  // it waits, or has not been ready yet
	settled string // the ID of the last instance that was ready, or has no probes
	pull    *Open  // the last pull of its image; nil if there was none
	// ran are the IDs of the instances whose runs were recorded, as long as they are there.
	ran map[string]bool
}

// Observe records what a pod's new status tells: runs that have ended, probes and waiting. seen are the instances that
// it was made of, whose times are exact, unlike those of the status; now is the time of the status.
func (r *Recorder) Observe(p *v1.Pod, seen []pod.Container, now time.Time) {
	if r == nil {
		return
	}
	r.Day.Observe(p, now)
	r.mu.Lock()
	defer r.mu.Unlock()
	key := pod.KeyOf(p)
	whole, all := podWaits(p, now)
	r.open(key, "", whole, all, now)
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		c := r.container(key, s.Name)
		c.recordRuns(r, key, s.Name, seen)
		want, is := r.goesOn(p, c, &s, startOf(seen, s.ContainerID, now), now)
		is = is && (!all || want.Kind != Waiting) // its containers wait for no more than the pod
		r.open(key, s.Name, want, is, now)
	}
}

// open makes want the span that goes on for a container or, if name is empty, for the pod; none if is is false. The
// caller holds mu.
func (r *Recorder) open(key pod.Key, name string, want Span, is bool, now time.Time) {
	c := r.container(key, name)
	if c.waits != nil && (!is || c.waits.Kind != want.Kind || c.waits.Detail != want.Detail) {
		c.waits.end(now)
		c.waits = nil
	}
	if is && c.waits == nil {
		c.waits = r.add(key, want)
	}
}

// container returns what was observed of a container. The caller holds mu.
func (r *Recorder) container(key pod.Key, name string) *container {
	if r.pods[key] == nil {
		r.pods[key] = map[string]*container{}
	}
	c := r.pods[key][name]
	if c == nil {
		c = &container{}
		r.pods[key][name] = c
	}
	return c
}

// Gone records that nothing is left of a pod.
func (r *Recorder) Gone(key pod.Key, now time.Time) {
	if r == nil {
		return
	}
	r.Day.Gone(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.pods[key] {
		if c.waits != nil {
			c.waits.end(now)
		}
	}
	delete(r.pods, key)
}

// startOf returns when the instance with an ID began to run; now if that is not known.
func startOf(seen []pod.Container, id string, now time.Time) time.Time {
	for _, c := range seen {
		if c.ID == pod.IDOf(id) && !c.StartedAt.IsZero() {
			return c.StartedAt
		}
	}
	return now
}

// recordRuns records the runs of a container's instances that have ended, each once. One that began before the recorder
// did is left out: what came before it is not known either. The caller holds r.mu.
func (c *container) recordRuns(r *Recorder, key pod.Key, name string, seen []pod.Container) {
	ran := map[string]bool{}
	for _, of := range seen {
		if of.Name != name || of.FinishedAt.IsZero() || of.StartedAt.IsZero() || of.StartedAt.Before(r.began) {
			continue
		}
		if ran[of.ID] = true; c.ran[of.ID] {
			continue
		}
		s := Span{Container: name, Kind: Run, Begin: of.StartedAt}
		if of.ExitCode != 0 {
			s.Error = fmt.Sprintf("exit code %d", of.ExitCode)
			if of.Reason != "" && of.Reason != "Error" {
				s.Error = of.Reason + ", " + s.Error
			}
		}
		s.end(of.FinishedAt)
		r.add(key, s)
	}
	c.ran = ran
}

// goesOn returns the span that goes on for a container with the status s, if there is one. started is when its instance
// began to run.
func (r *Recorder) goesOn(
	p *v1.Pod, c *container, s *v1.ContainerStatus, started, now time.Time,
) (span Span, is bool) {
	switch {
	case s.State.Waiting != nil && c.pull != nil && c.pull.now.End == nil:
		return Span{}, false // the pull is a span of its own, and the status has its progress
	case s.State.Waiting != nil && s.State.Waiting.Reason != "":
		kind := Waiting
		if strings.HasSuffix(s.State.Waiting.Reason, "BackOff") {
			kind = Backoff
		}
		return Span{Container: s.Name, Kind: kind, Detail: cut(waitsFor(p, s)), Begin: now}, true
	case s.State.Running == nil || pod.IDOf(s.ContainerID) == c.settled:
		return Span{}, false
	case s.Ready || !probed(pod.FindContainer(p, s.Name)):
		c.settled = pod.IDOf(s.ContainerID)
		return Span{}, false
	}
	return Span{Container: s.Name, Kind: Probe, Begin: later(started, r.began)}, true
}

// probed reports that a container is ready only after a probe has succeeded.
func probed(c *v1.Container) bool {
	return c != nil && (c.StartupProbe != nil || c.ReadinessProbe != nil)
}
