package query

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status/summary"
)

const defaultContainer = "kubectl.kubernetes.io/default-container"

// Container returns the container of p with the given name. If name is "", it returns the container
// that the default-container annotation names, or else the first one, and prints to errOut which one
// it chose if there are several.
func Container(errOut io.Writer, p *v1.Pod, name string) (summary.Role, error) {
	all := summary.Roles(p)
	if len(all) == 0 {
		return summary.Role{}, fmt.Errorf("pod %s has no containers", p.Name)
	}
	if name == "" {
		r := all[0]
		if i := slices.IndexFunc(all, func(r summary.Role) bool {
			return r.Container.Name == p.Annotations[defaultContainer]
		}); i >= 0 {
			r = all[i]
		} else if len(all) > 1 {
			fmt.Fprintf(errOut, "Defaulted container %q out of: %s\n", r.Container.Name, containerNames(all))
		}
		return r, nil
	}
	for _, r := range all {
		if r.Container.Name == name {
			return r, nil
		}
	}
	hint := "it has: " + containerNames(all)
	if near := nearest(name, ContainerNames([]*v1.Pod{p})); near != "" {
		hint = fmt.Sprintf("did you mean %s? %s", near, hint)
	}
	return summary.Role{}, &cli.Error{
		Code: cli.ExitFailed,
		Err:  fmt.Errorf("container %s is not valid for pod %s", name, p.Name),
		Hint: hint,
	}
}

func containerNames(all []summary.Role) string {
	var names []string
	for _, r := range all {
		name := r.Container.Name
		if r.Init {
			name += " (init)"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// Instance returns the instance of a container whose log is requested: the current or last one or,
// if previous is true, the one before.
func Instance(p *v1.Pod, r summary.Role, previous bool) (pod.Instance, error) {
	name := r.Container.Name
	i := pod.Instance{Key: pod.KeyOf(p), UID: p.UID, Container: name}
	if r.Status == nil {
		return i, fmt.Errorf("container %q in pod %q is waiting to start", name, p.Name)
	}
	// While the container waits to be restarted, its newest instance is the one that terminated
	// last.
	i.ID, i.Attempt = r.InstanceID(), int(r.Status.RestartCount)
	waiting := r.Status.State.Running == nil && r.Status.State.Terminated == nil
	last := r.Status.LastTerminationState.Terminated
	switch {
	case previous && last == nil:
		return i, fmt.Errorf("previous terminated container %q in pod %q not found", name, p.Name)
	case previous && !waiting:
		i.ID, i.Attempt = pod.IDOf(last.ContainerID), i.Attempt-1
	case waiting && last == nil:
		return i, fmt.Errorf("container %q in pod %q is waiting to start%s", name, p.Name, whyWaiting(p, r))
	}
	return i, nil
}

// NotRunning returns the error that a container of p does not run, with the reason if it waits.
func NotRunning(p *v1.Pod, r summary.Role) error {
	return fmt.Errorf("container %q in pod %q is not running%s", r.Container.Name, p.Name, whyWaiting(p, r))
}

// PodNotRunning returns the error that p does not run, with the reason that get shows.
func PodNotRunning(p *v1.Pod) error {
	why := summary.Why(p, time.Now())
	if why != "" {
		why = ": " + why
	}
	return fmt.Errorf("pod %q is not running%s", p.Name, why)
}

// whyWaiting returns ": " and why a container waits, in the words of get; "" if it does not wait.
func whyWaiting(p *v1.Pod, r summary.Role) string {
	if why := summary.WhyWaiting(p, r, time.Now()); why != "" {
		return ": " + why
	}
	return ""
}
