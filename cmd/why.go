package cmd

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
)

// why says in a line why a pod is not well, the most telling first; "" if it is, or is merely on its way.
func why(p *v1.Pod, now time.Time) string {
	text := ""
	if p.Status.Phase != v1.PodSucceeded && p.Status.Phase != "Deleted" {
		text = whyNot(p, now)
	}
	if wrong := p.Annotations[manifest.AnnotationError]; text == "" && wrong != "" {
		text = "manifest: " + wrong
	}
	return oneLine(text)
}

func whyNot(p *v1.Pod, now time.Time) string {
	if p.Status.Reason != "" {
		if p.Status.Message != "" {
			return p.Status.Message
		}
		return p.Status.Reason
	}
	all := roles(p)
	var unready string
	for _, r := range initialFirst(all) {
		if r.status == nil {
			continue
		}
		name := r.container.Name + ": "
		switch s := r.status.State; {
		case s.Waiting != nil && s.Waiting.Reason == "CrashLoopBackOff":
			return name + crash(r.status, nextAttempt(p, now))
		case s.Waiting != nil && s.Waiting.Message != "":
			// The reason is in the column STATUS.
			return name + oneLine(s.Waiting.Message) + nextAttempt(p, now)
		case s.Terminated != nil && s.Terminated.ExitCode != 0:
			return name + exit(s.Terminated)
		case s.Running != nil && !r.status.Ready && unready == "" && (!r.init || sidecar(r.container)):
			unready = name + notReady(r)
		}
	}
	return unready
}

// initialFirst puts the init containers before the others.
func initialFirst(all []role) []role {
	var first, rest []role
	for _, r := range all {
		if r.init {
			first = append(first, r)
		} else {
			rest = append(rest, r)
		}
	}
	return append(first, rest...)
}

func notReady(r role) string {
	if r.status.Started != nil && !*r.status.Started {
		switch {
		case r.container.StartupProbe != nil:
			return "its startup probe has not succeeded yet"
		case r.container.Lifecycle != nil && r.container.Lifecycle.PostStart != nil:
			return "its postStart hook is running"
		}
		return "not started up"
	}
	return "its readiness probe does not succeed"
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
	return "; next attempt in " + age(now, at)
}

// oneLine is the first line of text, and a mark if there are more.
func oneLine(text string) string {
	first, more, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if strings.TrimSpace(more) != "" {
		return first + " …"
	}
	return first
}
