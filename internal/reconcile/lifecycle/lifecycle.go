// Package lifecycle is what happens to the instances of one pod between their start and their
// removal: lifecycle hooks and probes ([Hooks], [Results]), the signals of their termination
// ([Terminator]), and what of that is saved in the checkpoint for the next podrun process
// ([Notes]). [Instances] has what was sent to each instance, and when, by the monotonic clock,
// which nobody can set.
//
// It does not decide when an instance is terminated, nor for how long it may run on: package plan
// does. It does not run probes by itself: package probe does.
//
// Begin reading with Hooks.Start and Terminator.Signal.
package lifecycle

import (
	"context"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/probe"
	"podrun.io/podrun/internal/reconcile/record"
	"podrun.io/podrun/internal/reconcile/revision"
	"podrun.io/podrun/internal/runtime"
)

// Prober runs the probes and the hooks of instances.
type Prober interface {
	// Set replaces the list of a pod's instances that are probed. It does not block.
	Set(key pod.Key, targets []probe.Target)
	// Results returns the probe results by instance ID. The caller owns the map.
	Results(key pod.Key) map[string]pod.Probed
	// Hook runs a lifecycle hook and returns when it has finished or ctx has ended.
	Hook(ctx context.Context, t probe.Target, hook *v1.LifecycleHandler) error
}

// Options configure the lifecycle of one pod's instances.
type Options struct {
	Key        pod.Key
	Prober     Prober
	Containers runtime.Containers
	Data       runtime.Data
	Manifests  *revision.Manifests
	Recorder   *record.Recorder
	// ProbeIP returns the address at which pods with the host's network are probed.
	ProbeIP func() string
	// Wall is the wall clock by which times are recorded.
	Wall func() time.Time
	// Goroutines waits for the hooks that run.
	Goroutines *sync.WaitGroup
	Log        *slog.Logger
}

// Lifecycle is the parts of this package for one pod. They share their state and are used by one
// goroutine only.
type Lifecycle struct {
	Instances  *Instances
	Results    *Results
	Notes      *Notes
	Hooks      *Hooks
	Terminator *Terminator
}

// New returns the lifecycle of the instances of a pod of which nothing is known yet.
func New(o Options) *Lifecycle {
	instances := newInstances(o.Wall)
	results := &Results{key: o.Key, prober: o.Prober, hooks: newHookSet(), instances: instances}
	notes := &Notes{data: o.Data, results: results, log: o.Log}
	return &Lifecycle{
		Instances: instances,
		Results:   results,
		Notes:     notes,
		Hooks: &Hooks{
			results:    results,
			notes:      notes,
			manifests:  o.Manifests,
			recorder:   o.Recorder,
			probeIP:    o.ProbeIP,
			log:        o.Log,
			goroutines: o.Goroutines,
			Done:       make(chan HookResult),
		},
		Terminator: &Terminator{containers: o.Containers, instances: instances, notes: notes},
	}
}
