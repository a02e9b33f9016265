package summary

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
)

// Why returns one line with the most significant reason why a pod is not well. It returns "" if the
// pod is well or is still starting.
func Why(p *v1.Pod, now time.Time) string {
	text := ""
	if p.DeletionTimestamp != nil && p.Status.Message != "" {
		text = p.Status.Message // why it is not terminated yet
	} else if p.Status.Phase != v1.PodSucceeded && p.Status.Phase != "Deleted" {
		text = whyNot(p, now)
	}
	if wrong := p.Annotations[manifest.AnnotationError]; text == "" && wrong != "" {
		text = "manifest: " + wrong
	}
	if why := p.Annotations[manifest.AnnotationRolledBack]; text == "" && why != "" {
		text = "RolledBack: " + why
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
	if text := Unmounted(p); text != "" {
		return OneLine(text) + nextAttempt(p, now)
	}
	all := Roles(p)
	var unready string
	for _, r := range InitialFirst(all) {
		if r.Status == nil {
			continue
		}
		name := r.Container.Name + ": "
		switch s := r.Status.State; {
		case s.Waiting != nil && (s.Waiting.Reason == "CrashLoopBackOff" || s.Waiting.Message != ""):
			// The STATUS column shows the reason of the waiting state already.
			return name + waiting(r.Status, nextAttempt(p, now))
		case s.Terminated != nil && s.Terminated.ExitCode != 0:
			return name + exit(s.Terminated)
		case s.Running != nil && !r.Status.Ready && unready == "" && (!r.Init || pod.IsSidecar(r.Container)):
			unready = name + notReady(r)
		}
	}
	return unready
}

// sinceUnowned returns " (AGE ago)", which is appended to the message of an Unowned pod: the age of
// the last status of a pod that no process owns. It returns "" for all other pods.
func sinceUnowned(p *v1.Pod, now time.Time) string {
	for _, c := range p.Status.Conditions {
		if p.Status.Reason == "Unowned" && c.Type == v1.PodReady && !c.LastTransitionTime.IsZero() {
			return " (" + duration.HumanDuration(now.Sub(c.LastTransitionTime.Time)) + " ago)"
		}
	}
	return ""
}

// InitialFirst returns the init containers before the main containers.
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
		return "it has not started up yet"
	}
	if r.Container.ReadinessProbe != nil {
		return "its readiness probe does not succeed"
	}
	return "it is being stopped"
}

// WhyWaiting returns in one line why a container of p waits: the reason, and what Why says of it. It returns "" if the
// container does not wait.
func WhyWaiting(p *v1.Pod, r Role, now time.Time) string {
	if r.Status == nil || r.Status.State.Waiting == nil {
		return ""
	}
	reason, text := r.Status.State.Waiting.Reason, OneLine(waiting(r.Status, nextAttempt(p, now)))
	if reason == "" || strings.HasPrefix(text, reason) {
		return text
	}
	return reasonAnd(reason, text)
}

// waiting describes a container that waits. next is what nextAttempt returns for its pod.
func waiting(s *v1.ContainerStatus, next string) string {
	w := s.State.Waiting
	switch t := s.LastTerminationState.Terminated; {
	case w.Reason == "CrashLoopBackOff" && t != nil:
		return exit(t) + next
	case w.Reason == "CrashLoopBackOff":
		return reasonAnd(w.Reason, w.Message) + next
	case w.Message != "":
		return OneLine(w.Message) + next
	}
	return ""
}

// exit describes how a container terminated.
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

// Unmounted returns which volume keeps all containers of a pod from starting, and why; "" if none does. The words of
// the kubelet before that are left out: a column is short.
func Unmounted(p *v1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReadyToStartContainers && c.Reason == pod.ReasonFailedMount {
			text := strings.TrimPrefix(c.Message, "MountVolume.SetUp failed for ")
			return strings.TrimPrefix(text, "MapVolume.SetUpDevice failed for ")
		}
	}
	return ""
}

// nextAttempt returns "; next attempt in DURATION", which is appended to a reason, or "" if no
// attempt is scheduled. "in 0s" would read as if the attempt had been forgotten.
func nextAttempt(p *v1.Pod, now time.Time) string {
	at, err := time.Parse(time.RFC3339, p.Annotations[manifest.AnnotationNext])
	if err != nil || !at.After(now) {
		return ""
	}
	if at.Sub(now) < time.Second {
		return "; next attempt now"
	}
	return "; next attempt in " + duration.HumanDuration(at.Sub(now))
}

// OneLine returns the first line of text. It appends an ellipsis if there are more lines.
func OneLine(text string) string {
	first, more, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if strings.TrimSpace(more) != "" {
		return first + " …"
	}
	return first
}
