package cli

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
)

// Why says in a line why a pod is not well, the most telling first; "" if it is, or is merely on its way.
func Why(p *v1.Pod, now time.Time) string {
	text := ""
	if p.Status.Phase != v1.PodSucceeded && p.Status.Phase != "Deleted" {
		text = whyNot(p, now)
	}
	if wrong := p.Annotations[manifest.AnnotationError]; text == "" && wrong != "" {
		text = "manifest: " + wrong
	}
	return OneLine(text)
}

func whyNot(p *v1.Pod, now time.Time) string {
	if p.Status.Reason != "" {
		if p.Status.Message != "" {
			return p.Status.Message + sinceUnowned(p, now)
		}
		return p.Status.Reason
	}
	all := Roles(p)
	var unready string
	for _, r := range InitialFirst(all) {
		if r.Status == nil {
			continue
		}
		name := r.Container.Name + ": "
		switch s := r.Status.State; {
		case s.Waiting != nil && s.Waiting.Reason == "CrashLoopBackOff":
			return name + crash(r.Status, nextAttempt(p, now))
		case s.Waiting != nil && s.Waiting.Message != "":
			// The reason is in the column STATUS.
			return name + OneLine(s.Waiting.Message) + nextAttempt(p, now)
		case s.Terminated != nil && s.Terminated.ExitCode != 0:
			return name + exit(s.Terminated)
		case s.Running != nil && !r.Status.Ready && unready == "" && (!r.Init || pod.IsSidecar(r.Container)):
			unready = name + notReady(r)
		}
	}
	return unready
}

// sinceUnowned says how long ago it was that something was known of a pod that no process keeps, as an addition to a
// sentence.
func sinceUnowned(p *v1.Pod, now time.Time) string {
	for _, c := range p.Status.Conditions {
		if p.Status.Reason == "Unowned" && c.Type == v1.PodReady && !c.LastTransitionTime.IsZero() {
			return " (" + duration.HumanDuration(now.Sub(c.LastTransitionTime.Time)) + " ago)"
		}
	}
	return ""
}

// InitialFirst puts the init containers before the others.
func InitialFirst(all []Role) []Role {
	var first, rest []Role
	for _, r := range all {
		if r.Init {
			first = append(first, r)
		} else {
			rest = append(rest, r)
		}
	}
	return append(first, rest...)
}

func notReady(r Role) string {
	if r.Status.Started != nil && !*r.Status.Started {
		switch {
		case r.Container.StartupProbe != nil:
			return "its startup probe has not succeeded yet"
		case r.Container.Lifecycle != nil && r.Container.Lifecycle.PostStart != nil:
			return "its postStart hook is running"
		}
		return "not started up"
	}
	if r.Container.ReadinessProbe != nil {
		return "its readiness probe does not succeed"
	}
	return "it is being ended"
}

// crash words a container that waits to be started again.
func crash(s *v1.ContainerStatus, next string) string {
	if t := s.LastTerminationState.Terminated; t != nil {
		return exit(t) + next
	}
	return reasonAnd(s.State.Waiting.Reason, s.State.Waiting.Message) + next
}

// exit words how a container ended.
func exit(t *v1.ContainerStateTerminated) string {
	text := fmt.Sprintf("exit code %d", t.ExitCode)
	if t.Reason != "" && t.Reason != "Error" && t.Reason != "Completed" {
		text = t.Reason + ", " + text
	}
	return reasonAnd(text, t.Message)
}

func reasonAnd(reason, message string) string {
	if message = strings.TrimSpace(message); message == "" || message == reason {
		return reason
	}
	return reason + ": " + message
}

// nextAttempt says when podrun tries again, as an addition to a sentence.
func nextAttempt(p *v1.Pod, now time.Time) string {
	at, err := time.Parse(time.RFC3339, p.Annotations[manifest.AnnotationNext])
	if err != nil || !at.After(now) {
		return ""
	}
	return "; next attempt in " + duration.HumanDuration(at.Sub(now))
}

// OneLine is the first line of text, and a mark if there are more.
func OneLine(text string) string {
	first, more, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if strings.TrimSpace(more) != "" {
		return first + " …"
	}
	return first
}
