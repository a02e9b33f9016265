package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// IsSidecar reports that an init container is a sidecar: it runs beside the containers after it, as
// Kubernetes' IsRestartableInitContainer says.
func IsSidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// SidecarOrder is the place of the named container among p's init containers, from 1, if it is a sidecar;
// else 0.
func SidecarOrder(p *v1.Pod, name string) int {
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.Name == name && IsSidecar(c) {
			return i + 1
		}
	}
	return 0
}

// AllContainers are p's init containers and then its others, in the manifest's order.
func AllContainers(p *v1.Pod) []*v1.Container {
	all := make([]*v1.Container, 0, len(p.Spec.InitContainers)+len(p.Spec.Containers))
	for _, of := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range of {
			all = append(all, &of[i])
		}
	}
	return all
}

// Probed is what the hooks and probes of one instance have come to so far.
type Probed struct {
	// Starting says that its postStart hook is still running: it counts as not started up.
	Starting bool
	// Started and Ready are what the probes say; nil: nothing yet, or there is no such probe.
	Started, Ready *bool
	// Since is when that changed last.
	Since time.Time
	// Failed says that the instance has to end; nil: it need not.
	Failed *Failed
}

// ReasonPostStart is why an instance has to end whose postStart hook failed.
const ReasonPostStart = "FailedPostStartHook"

// Failed is why an instance has to end and, unless its policy is Never, be followed by another.
type Failed struct {
	// Why is in Kubernetes' words: "failed liveness probe", ReasonPostStart, …; Message what was heard.
	Why, Message string
	// Grace is the termination grace period that the probe asks for; nil: the instance's.
	Grace *time.Duration
	// Resize says that it is at no fault, but needs a new instance for the CPU or memory that it has been
	// given: at once, and whatever its policy.
	Resize bool `json:",omitzero"`
}

// IsStarted reports that a running instance of c has started up: its postStart hook is done, and has not failed, and
// its startup probe, if it has one, has succeeded.
func (p Probed) IsStarted(c *v1.Container) bool {
	if p.Starting || p.Failed != nil && p.Failed.Why == ReasonPostStart {
		return false
	}
	if c.StartupProbe == nil {
		return true
	}
	return p.Started != nil && *p.Started
}

// IsReady reports that a running instance of c is ready: what its readiness probe says, at once if it has
// none, and never before it has started up.
func (p Probed) IsReady(c *v1.Container) bool {
	if !p.IsStarted(c) {
		return false
	}
	return c.ReadinessProbe == nil || p.Ready != nil && *p.Ready
}
