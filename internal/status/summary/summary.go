// Package summary summarizes the status of a pod in one line: its state in a word, as in kubectl's
// STATUS column, and the reason why it is not well. It is pure: it reads nothing but the v1.Pod,
// and prints nothing. The command line and the HTTP server print the results.
//
// Begin reading at Of and Why.
package summary

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// Summary is the one-line summary of a pod: the READY, STATUS and RESTARTS columns of kubectl get
// pods. Unlike kubectl, it always shows a reason in the status of the pod itself.
type Summary struct {
	// Text is the state in a word, such as Running, CrashLoopBackOff, Init:0/2 or Terminating.
	Text string
	// Ready is the number of ready containers and Containers the number of containers. Both count
	// sidecars, and neither counts other init containers.
	Ready, Containers int
	Restarts          int
	LastRestart       time.Time // zero if no container has been restarted
	// LastEnd is the reason of the end before LastRestart, such as Error or OOMKilled.
	LastEnd string
}

// Of summarizes a pod by its status.
func Of(p *v1.Pod) Summary {
	s := Summary{Text: string(p.Status.Phase), Containers: len(p.Spec.Containers)}
	for i := range p.Spec.InitContainers {
		if pod.IsSidecar(&p.Spec.InitContainers[i]) {
			s.Containers++
		}
	}
	initializing, sidecars := s.initial(p)
	if !initializing || condition(p, v1.PodInitialized) {
		s.Restarts, s.LastRestart, s.LastEnd = sidecars.Restarts, sidecars.LastRestart, sidecars.LastEnd
		s.main(p)
	}
	if p.Status.Reason != "" {
		// The reason applies to the whole pod. The state of its containers must not hide it: the
		// containers of an evicted pod, for example, may well complete when they are stopped.
		s.Text = p.Status.Reason
	}
	if p.DeletionTimestamp != nil && p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
		s.Text = "Terminating"
	}
	return s
}

// State returns the state of p in a word, for the progress of a run.
func State(p *v1.Pod) string {
	if p.Status.Phase == v1.PodPending && p.Status.Reason != "" {
		return p.Status.Reason // the reason why the pod does not start
	}
	return Of(p).Text
}

func condition(p *v1.Pod, kind v1.PodConditionType) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

// initial evaluates the init containers. It returns true and sets Text if one of them holds up the
// pod. The second result counts the restarts of the sidecars only, because these still count after
// initialization.
func (s *Summary) initial(p *v1.Pod) (bool, Summary) {
	isSidecar := map[string]bool{}
	for i := range p.Spec.InitContainers {
		isSidecar[p.Spec.InitContainers[i].Name] = pod.IsSidecar(&p.Spec.InitContainers[i])
	}
	var sidecars Summary
	for i, c := range p.Status.InitContainerStatuses {
		s.restarted(c)
		if isSidecar[c.Name] {
			sidecars.restarted(c)
		}
		t, w := c.State.Terminated, c.State.Waiting
		switch {
		case t != nil && t.ExitCode == 0:
			continue
		case isSidecar[c.Name] && c.Started != nil && *c.Started:
			if c.Ready {
				s.Ready++
			}
			continue
		case t != nil:
			s.Text = "Init:" + ended(t)
		case w != nil && w.Reason != "" && w.Reason != "PodInitializing":
			s.Text = "Init:" + w.Reason
		default:
			s.Text = fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers))
		}
		return true, sidecars
	}
	return false, sidecars
}

// main evaluates the main containers. The first one that is not well determines Text.
func (s *Summary) main(p *v1.Pod) {
	running, completed := false, false
	for i := len(p.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := p.Status.ContainerStatuses[i]
		s.restarted(c)
		t, w := c.State.Terminated, c.State.Waiting
		switch {
		case w != nil && w.Reason != "":
			s.Text, completed = w.Reason, false
		case t != nil:
			s.Text, completed = ended(t), t.Reason == "Completed"
		case c.Ready && c.State.Running != nil:
			running = true
			s.Ready++
		}
	}
	if completed && running {
		s.Text = "NotReady"
		if condition(p, v1.PodReady) {
			s.Text = "Running"
		}
	}
}

func ended(t *v1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}

func (s *Summary) restarted(c v1.ContainerStatus) {
	s.Restarts += int(c.RestartCount)
	if t := c.LastTerminationState.Terminated; t != nil && t.FinishedAt.After(s.LastRestart) {
		s.LastRestart, s.LastEnd = t.FinishedAt.Time, ended(t)
	}
}
