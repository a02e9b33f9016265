// Package reconcile makes the machine match the desired pods. One Loop starts a worker per pod
// name; each worker repeats a sync: inspect the pod, let the planner compute the actions, execute
// them, until the plan has no actions left.
//
// The package owns the workers, the execution of every plan.Action, the order and admission of
// starts, and the pod's saved state between syncs. It does not decide: package plan computes what
// to do, and package relist reports what is there.
//
// Begin reading with Loop.Run, then worker.sync (the sync) and executor.do (from action to effect).
package reconcile

import (
	"context"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/probe"
	"podrun.io/podrun/internal/runtime"
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

// Volumes prepares what containers mount.
type Volumes interface {
	// Setup checks or creates the sources of in.Container's mounts and returns the mounts. A
	// *runtime.ReasonError says why a source is not available.
	Setup(ctx context.Context, in pod.Inside) ([]pod.Mount, error)
	// Files reads files from a pod's volumes. Files that do not exist are missing from the result.
	Files(p *v1.Pod, keys []pod.FileKey) (map[pod.FileKey]string, error)
	// Refresh updates the volumes of a running pod to its current manifest and objects (ConfigMaps
	// and Secrets).
	Refresh(ctx context.Context, in pod.Inside) error
	// Teardown unmounts what was mounted for a revision. A mount that is busy is an error.
	Teardown(ctx context.Context, uid pod.UID) error
}

// Disk measures how much of the machine's disk pods use.
type Disk interface {
	// Measure returns p's usage of each resource that p has a disk limit for. instances are the
	// newest instances of its containers. Measure may take long.
	Measure(ctx context.Context, p *v1.Pod, instances []pod.Container) (pod.Usage, error)
}

// Logs converts the raw output of containers to their log files.
type Logs interface {
	// Follow starts following the log of a running instance. It is called for every running
	// instance at every sync and does not block. pid is the instance's first process, 0 if not
	// known yet.
	Follow(i pod.Instance, pid int)
	// Finish converts the rest of an instance's output. It is called after the instance has exited
	// and before its exit is reaped.
	Finish(ctx context.Context, i pod.Instance) error
	// End returns the end of an instance's log: at most 80 lines and 2048 bytes.
	End(ctx context.Context, i pod.Instance) string
	// Drop removes the logs of an instance that is being removed and of all earlier instances of
	// its container.
	Drop(last pod.Instance) error
	// Forget releases what is held for a revision whose files are about to be removed.
	Forget(uid pod.UID)
}

// Prober runs the probes and the hooks of instances.
type Prober interface {
	// Set replaces the list of a pod's instances that are probed. It does not block.
	Set(key pod.Key, targets []probe.Target)
	// Results returns the probe results by instance ID. The caller owns the map.
	Results(key pod.Key) map[string]pod.Probed
	// Hook runs a lifecycle hook and returns when it has finished or ctx has ended.
	Hook(ctx context.Context, t probe.Target, hook *v1.LifecycleHandler) error
}

// Publisher publishes the status of pods. Its methods must not block for long.
type Publisher interface {
	// Publish publishes a pod with its status. settled reports that nothing is left to do for the
	// pod now.
	Publish(p *v1.Pod, settled bool) error
	// Leaving publishes that a pod is being terminated for good. It is called again when the
	// readiness of an instance changes; ready is by instance ID. The rest of the pod's status stays
	// as it was published last.
	Leaving(key pod.Key, now time.Time, ready map[string]bool) error
	// Gone publishes that nothing is left of a pod.
	Gone(key pod.Key) error
	// NotOwned publishes why this process does not own the pod whose manifest is p, for example
	// because another process owns it. A nil why means that this process owns it.
	NotOwned(key pod.Key, p *v1.Pod, why *plan.Waiting) error
}

// Recorder records events. Record does not block.
type Recorder interface{ Record(e pod.Event) }

// Halt terminates pods for a shutdown of the machine and prevents their start, until the next Halt
// replaces it.
type Halt struct {
	// Below is the priority below which pods are terminated. math.MinInt64 terminates none.
	Below int64
	// Grace is the longest grace period of a pod that is terminated.
	Grace time.Duration
}

// Options configure a Loop.
type Options struct {
	Inspector  Inspector
	Sandboxes  runtime.Sandboxes
	Containers runtime.Containers
	Images     runtime.Images
	Data       runtime.Data
	Owners     Owners // nil: no other process runs pods
	Volumes    Volumes
	// Disk is used only for pods that have disk limits.
	Disk      Disk
	Logs      Logs
	Prober    Prober
	Publisher Publisher
	Events    Recorder
	// Results delivers the keys of pods that have new probe results.
	Results <-chan pod.Key
	// Owner is the kind of run that is saved with each pod: "serve" or "once".
	Owner string
	// Adopts reports whether this loop is to terminate a pod that no manifest names. It is called
	// only after the first complete list, with what was observed then. nil: it terminates none.
	Adopts func(pod.Observed) bool
	// Strays are pods that may have left something that no list shows, such as a status file.
	Strays []pod.Key
	// Rerun runs pods again that had completed before the loop started.
	Rerun bool
	// LogTries is the number of consecutive failed syncs after which an exited instance is reaped
	// although its log cannot be written. 0: no limit.
	LogTries int
	// Troubled is called with the error each time an action for a pod has failed. It is called from
	// several goroutines and may be nil.
	Troubled func(key pod.Key, why error)
	// Hurry, once closed, makes every termination a kill without a grace period.
	Hurry <-chan struct{}
	// Halt delivers the shutdown of the machine: which pods are terminated, by priority. May be
	// nil.
	Halt <-chan Halt
	// StopAll is called when the loop ends and reports whether to stop and remove all of its pods.
	// nil: no.
	StopAll func() bool
	// Wall is the wall clock by which the times of instances are recorded. nil: time.Now.
	Wall func() time.Time
	// Boot is the kernel's boot ID.
	Boot string
	// HostIP is the node's address in pod statuses.
	HostIP string
	// Node is the node's allocatable resources.
	Node v1.ResourceList
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
