package pod

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// IsSidecar reports whether an init container is a sidecar, which keeps running beside the
// containers after it: Kubernetes' IsRestartableInitContainer.
func IsSidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// IsInit reports whether the named container is one of p's init containers. p may be nil.
func IsInit(p *v1.Pod, name string) bool {
	return p != nil && slices.ContainsFunc(p.Spec.InitContainers, func(c v1.Container) bool { return c.Name == name })
}

// SidecarOrder returns the position of the named container among p's init containers, from 1, if it
// is a sidecar; else 0.
func SidecarOrder(p *v1.Pod, name string) int {
	return 1 + slices.IndexFunc(p.Spec.InitContainers, func(c v1.Container) bool {
		return c.Name == name && IsSidecar(&c)
	})
}

// AllContainers returns p's init containers and then its other containers, in the manifest's order.
// The pointers point into p.
func AllContainers(p *v1.Pod) []*v1.Container {
	all := make([]*v1.Container, 0, len(p.Spec.InitContainers)+len(p.Spec.Containers))
	for _, of := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range of {
			all = append(all, &of[i])
		}
	}
	return all
}

// Probed holds the current results of the hooks and probes of one instance.
type Probed struct {
	// Starting reports that the postStart hook is still running, so that the instance does not
	// count as started.
	Starting bool
	// Started and Ready are the results of the startup and the readiness probe; nil if there is no
	// result yet or no such probe.
	Started, Ready *bool
	// Since is when a result changed last.
	Since time.Time
	// Failed is why the instance has to be terminated; nil if it has not.
	Failed *Failed
	// RestartRequested reports that a user requests the restart of the instance.
	RestartRequested bool
}

// RestartRequest is the request of a user to restart an instance of a container or, with no ID, to
// try again at once what the container waits for.
type RestartRequest struct {
	UID           UID
	Container, ID string
}

// ReasonPostStart is the reason to terminate an instance whose postStart hook failed.
const ReasonPostStart = "FailedPostStartHook"

// Failed is why an instance has to be terminated and, unless its restart policy is Never, replaced
// by a new one.
type Failed struct {
	// Why is the reason in Kubernetes' words: "failed liveness probe", ReasonPostStart, …; Message
	// is the output or error.
	Why, Message string
	// Grace is the termination grace period of the probe; nil means the instance's own.
	Grace *time.Duration
	// Resize reports that the instance did not fail, but has to be replaced to get the CPU or
	// memory that it has been allocated: at once and whatever its restart policy.
	Resize bool `json:",omitzero"`
	// Requested reports that the instance did not fail, but a user has requested its restart: at once and
	// whatever its restart policy.
	Requested bool `json:",omitzero"`
}

// IsStarted reports whether a running instance of c has started: its postStart hook has completed
// without failure, and its startup probe, if it has one, has succeeded.
func (p Probed) IsStarted(c *v1.Container) bool {
	if p.Starting || p.Failed != nil && p.Failed.Why == ReasonPostStart {
		return false
	}
	if c.StartupProbe == nil {
		return true
	}
	return p.Started != nil && *p.Started
}

// IsReady reports whether a running instance of c is ready: the result of its readiness probe or,
// without one, true as soon as it has started. It is never ready before it has started.
func (p Probed) IsReady(c *v1.Container) bool {
	if !p.IsStarted(c) {
		return false
	}
	return c.ReadinessProbe == nil || p.Ready != nil && *p.Ready
}

// FindContainer returns the container of p, init containers included, with that name; nil if there
// is none or p is nil.
func FindContainer(p *v1.Pod, name string) *v1.Container {
	if p == nil {
		return nil
	}
	all := AllContainers(p)
	if i := slices.IndexFunc(all, func(c *v1.Container) bool { return c.Name == name }); i >= 0 {
		return all[i]
	}
	return nil
}
