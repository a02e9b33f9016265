// Package reconcile makes the machine match the desired pods. One Loop starts a worker per pod
// name; each worker repeats a sync: inspect the pod, let the planner compute the actions, execute
// them, until the plan has no actions left.
//
// The package owns the workers. A worker acts only while this process owns its pod; the locks for
// that are behind the interface Owners, which package agent/owner implements. What a worker
// consists of is in the packages below: revision has its state, execute the effects of the plan,
// lifecycle the hooks and signals of instances, pull the images, eviction the disk usage, publish
// the status, record the events, and admission what the workers share. None of them decides:
// plan.SelectRevision selects the revision, plan.Compute computes what to do, and package relist
// reports what is there.
//
// Begin reading with Loop.Run, then worker.sync (the sync) and execute.Executor.Perform (from
// action to effect).
package reconcile

import (
	"context"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile/admission"
	"podrun.io/podrun/internal/reconcile/eviction"
	"podrun.io/podrun/internal/reconcile/execute"
	"podrun.io/podrun/internal/reconcile/lifecycle"
	"podrun.io/podrun/internal/reconcile/publish"
	"podrun.io/podrun/internal/reconcile/record"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/timeline"
)

// Inspector reports what is on the machine. The relister implements it.
type Inspector interface {
	// Inspect inspects a pod now.
	Inspect(ctx context.Context, key pod.Key) (pod.Observed, error)
	// Seen returns the newest cached observation of a pod and does not inspect it.
	Seen(key pod.Key) pod.Observed
	// Listed returns a channel that is closed when the first complete list has been read.
	Listed() <-chan struct{}
}

// Publisher publishes the status of pods, and who owns them. Its methods must not block for long.
type Publisher interface {
	publish.Publisher
	// NotOwned publishes why this process does not own the pod whose manifest is p, for example
	// because another process owns it. A nil why means that this process owns it.
	NotOwned(key pod.Key, p *v1.Pod, why *plan.Waiting) error
}

// Recorder records events. event.Recorder implements it.
type Recorder = record.Events

// Halt terminates pods for a shutdown of the machine and prevents their start, until the next Halt
// replaces it.
type Halt struct {
	// Below is the priority below which pods are terminated. math.MinInt64 terminates none.
	Below int64
	// Grace is the longest grace period of a pod that is terminated.
	Grace time.Duration
}

// Devices are the devices of plugins.
type Devices = admission.Devices

// Options configure a Loop.
type Options struct {
	Inspector  Inspector
	Sandboxes  runtime.Sandboxes
	Containers runtime.Containers
	Images     runtime.Images
	Data       runtime.Data
	Owners     Owners // nil: no other process runs pods
	Volumes    execute.Volumes
	// Disk is used only for pods that have disk limits.
	Disk      eviction.Disk
	Logs      execute.Logs
	Prober    lifecycle.Prober
	Publisher Publisher
	Events    Recorder
	// Results delivers the keys of pods that have new probe results.
	Results <-chan pod.Key
	// Owner is the kind of run that is saved with each pod: "serve" or "once".
	Owner string
	// Terminates reports whether this loop is to terminate a pod that no manifest names; it leaves
	// other such pods as they are. It is called only after the first complete list, with what was
	// observed then. nil: it terminates none.
	Terminates func(pod.Observed) bool
	// Strays are pods that may have left something that no list shows, such as a status file. This
	// has nothing to do with pod.Container.Stray, an instance without a checkpoint.
	Strays []pod.Key
	// Refusal returns why the policy does not allow a pod; "" if it does. It judges what is kept of a pod
	// without a valid manifest. nil: all pods are allowed.
	Refusal func(p *v1.Pod) string
	// Rerun runs pods again that had completed before the loop started.
	Rerun bool
	// KeepVolumes leaves the emptyDir volumes of a pod that has completed until it is removed: reports are read from
	// them.
	KeepVolumes bool
	// LogTries is the number of consecutive failed syncs after which an exited instance is reaped
	// although its log cannot be written. 0: no limit.
	LogTries int
	// Troubled is called with the error each time an action for a pod has failed. It is called from
	// several goroutines and may be nil.
	Troubled func(key pod.Key, why error)
	// Stuck is called with the reason why a pod or one of its containers cannot be started, if no later
	// attempt can have another result. It is called from several goroutines and may be nil.
	Stuck func(key pod.Key, why error)
	// Timeline records what pods spend their time on. May be nil.
	Timeline *timeline.Recorder
	// Removing is called before the logs of a revision are removed, when its containers have ended and
	// their logs are complete; again if the removal fails. It is called from several goroutines and may be
	// nil.
	Removing func(key pod.Key, uid pod.UID)
	// Requests are the restarts that users request, and Requested wakes the loop when there may be some.
	// Both may be nil.
	Requests  Requests
	Requested <-chan struct{}
	// Remount makes pods try again at once what could not be mounted or lacked an address. May be nil.
	Remount <-chan struct{}
	// Hurry, once closed, makes every termination a kill without a grace period.
	Hurry <-chan struct{}
	// Halt delivers the shutdown of the machine: which pods are terminated, by priority. May be
	// nil.
	Halt <-chan Halt
	// Ping is received from as long as the loop is not stuck. May be nil.
	Ping <-chan struct{}
	// StopAll is called when the loop ends and reports whether to stop and remove all of its pods. longest is how long
	// that takes, unless something hangs. nil: no.
	StopAll func(longest time.Duration) bool
	// Stops reports that pods are removed although manifests may name them again: what has its result for good
	// keeps it.
	Stops bool
	// Wall is the wall clock by which the times of instances are recorded. nil: time.Now.
	Wall func() time.Time
	// Boot is the kernel's boot ID, and Booted when that boot was, as a monotonic time of this process; zero: unknown.
	Boot   string
	Booted time.Time
	// HostIP returns the node's address in pod statuses, ProbeIP that at which probes reach pods in its network.
	HostIP, ProbeIP func() string
	// Node is the node's allocatable resources, without the devices of plugins.
	Node v1.ResourceList
	// Devices are the devices of plugins. May be nil.
	Devices Devices
	// NodeLabels are the labels that a pod's nodeSelector is matched with.
	NodeLabels map[string]string
	// MaxBackoff is the longest crash back-off. 0 means 5 minutes.
	MaxBackoff time.Duration
	// PreferLocal starts a container from a local image if an image with the pull policy Always
	// cannot be pulled.
	PreferLocal bool
	// Parallel is the maximum number of sandboxes and containers that are created at the same time,
	// and of those that are removed at the same time. 0 means 4.
	Parallel int
	Log      *slog.Logger
}
