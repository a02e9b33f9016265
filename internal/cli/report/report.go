// Package report reports the result of a run of podrun once: in a JUnit file, in the last message, and
// by the logs of containers that failed or were not done.
//
// Begin reading at Run.
package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status/summary"
)

// Run is the result of a run.
type Run struct {
	// Pods have their last status.
	Pods []*v1.Pod
	// Jobs are the Jobs, to which some of the pods belong.
	Jobs []Job
	// TimedOut and Interrupted report what ended the wait before every pod was done.
	TimedOut, Interrupted bool
	// Removed reports that no pod of the run exists any more.
	Removed bool
	// Stops are the pods that are stopped, if they still run, when the run has been reported.
	Stops map[pod.Key]bool
	// Stranded are the pods that were not started because another one has failed.
	Stranded map[pod.Key]bool
	// Began is when the run began.
	Began time.Time
	// Durations is how long each pod took, and Runs how long each container that has run did, by name.
	Durations map[pod.Key]time.Duration
	Runs      map[pod.Key]map[string]time.Duration
	// Dirs has the volumes with the reports of containers.
	Dirs layout.Dirs
	// Output returns the end of what a container has written, and Warn is called with what cannot be
	// reported. Both may be nil.
	Output func(p *v1.Pod, s *v1.ContainerStatus) (out, errOut string)
	Warn   func(text string)
	// Done reports whether a pod has its result.
	Done func(*v1.Pod) bool
	// Problem returns why a pod has failed where its phase does not say so; "" if it has not. nil: the
	// phase always does.
	Problem func(*v1.Pod) string

	// until is when no more of the reports of containers is read; zero: never.
	until time.Time
}

// problem is Problem.
func (r Run) problem(p *v1.Pod) string {
	if r.Problem == nil {
		return ""
	}
	return r.Problem(p)
}

// Failed reports whether a pod has failed.
func (r Run) Failed(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed || r.problem(p) != "" }

// Message returns the error text for a run that was interrupted or timed out after timeout.
func (r Run) Message(timeout time.Duration) string {
	bad := r.unfinished()
	switch {
	case !r.Interrupted:
		return fmt.Sprintf("not done within %s: %s", timeout, bad)
	case bad == "":
		return "interrupted while cleaning up"
	case r.Removed:
		return "interrupted; the pods were stopped and removed; not done: " + bad
	}
	return "interrupted; not done: " + bad
}

// lastState returns the state of p in a word and, in brackets, the last exit of the first container
// that has failed or else the reason why p is not well.
func lastState(p *v1.Pod) string {
	for _, s := range allStatuses(p) {
		if t := lastExit(s); t != nil && t.ExitCode != 0 {
			return summary.State(p) + " (" + exitOf(t) + ")"
		}
	}
	if why := summary.Why(p, time.Now()); why != "" && why != summary.State(p) {
		return summary.State(p) + " (" + why + ")"
	}
	return summary.State(p)
}

// exitOf returns an exit code, with the reason if that adds information.
func exitOf(t *v1.ContainerStateTerminated) string {
	code := fmt.Sprintf("exit code %d", t.ExitCode)
	if t.Reason == "" || t.Reason == "Error" {
		return code
	}
	return t.Reason + ", " + code
}

// lastExit returns the most recent termination of a container, or nil if it has not terminated yet.
func lastExit(s v1.ContainerStatus) *v1.ContainerStateTerminated {
	if s.State.Terminated != nil {
		return s.State.Terminated
	}
	return s.LastTerminationState.Terminated
}

// ExitCode returns the exit code of the last instance of a container that has ended; 0 if none has.
func ExitCode(s *v1.ContainerStatus) int {
	if s == nil || lastExit(*s) == nil {
		return 0
	}
	return int(lastExit(*s).ExitCode)
}

func allStatuses(p *v1.Pod) []v1.ContainerStatus {
	return slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
}

// notDoneText returns the details of a pod that is not done: its message, the last exit of each
// container, and what its containers wait for.
func notDoneText(p *v1.Pod) string {
	var lines []string
	if p.Status.Message != "" {
		lines = append(lines, p.Status.Message)
	}
	if ended := lastExits(p); ended != "" {
		lines = append(lines, ended)
	}
	for _, s := range allStatuses(p) {
		if w := s.State.Waiting; w != nil && w.Message != "" {
			lines = append(lines, s.Name+": "+w.Message)
		}
	}
	return strings.Join(lines, "\n")
}

// lastExits returns one line per container with its last exit.
func lastExits(p *v1.Pod) string {
	var lines []string
	for _, s := range allStatuses(p) {
		if t := lastExit(s); t != nil {
			lines = append(lines,
				fmt.Sprintf("%s: %s, exit code %d%s", s.Name, t.Reason, t.ExitCode, detail(t.Message)))
		}
	}
	return strings.Join(lines, "\n")
}

// unfinished lists the pods that are not done, each with its state.
func (r Run) unfinished() string {
	var names []string
	for _, p := range r.Pods {
		if !r.Done(p) {
			names = append(names, fmt.Sprintf("%s/%s %s", p.Namespace, p.Name, lastState(p)))
		}
	}
	return strings.Join(append(names, r.unfinishedJobs()...), ", ")
}

// detail returns a message as the end of a line.
func detail(message string) string {
	if message == "" {
		return ""
	}
	return ": " + message
}
