// Package reconcile brings the machine to what is wanted: one loop hands every pod to a worker of its
// own, and a worker asks the planner what to do and does it until nothing is left to do. It decides
// nothing: every judgement is the planner's, every fact the relister's.
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

// Inspector tells what is there; the relister is one.
type Inspector interface {
	// Inspect inspects a pod now.
	Inspect(ctx context.Context, key pod.Key) (pod.Observed, error)
	// Seen returns the newest sight without looking.
	Seen(key pod.Key) pod.Observed
	// Listed is closed when everything that is there has been seen once.
	Listed() <-chan struct{}
}

// Volumes readies what containers mount.
type Volumes interface {
	// Setup checks or makes the sources of in.Container's mounts. A *runtime.ReasonError says why one
	// cannot be had.
	Setup(ctx context.Context, in pod.Inside) ([]pod.Mount, error)
	// Files reads files in a pod's volumes; those that are not there are left out.
	Files(p *v1.Pod, keys []pod.FileKey) (map[pod.FileKey]string, error)
	// Refresh brings what a running pod's volumes show of its manifest and of objects up to date.
	Refresh(ctx context.Context, in pod.Inside) error
	// Teardown takes down what was mounted for a revision; what is busy is an error.
	Teardown(ctx context.Context, uid pod.UID) error
}

// Disk measures what pods take of the machine's disk.
type Disk interface {
	// Measure returns what p takes of what it has limits for; instances are its containers' newest. It may
	// take long.
	Measure(ctx context.Context, p *v1.Pod, instances []pod.Container) (pod.Usage, error)
}

// Logs turns what containers write into their logs.
type Logs interface {
	// Follow is called for every running instance, again and again, with its first process, 0 where that is
	// not known yet; it does not block.
	Follow(i pod.Instance, pid int)
	// Finish is called after an instance has ended, before its exit is reaped.
	Finish(ctx context.Context, i pod.Instance) error
	// End returns the end of what an instance wrote: 80 lines at most, and 2048 bytes.
	End(ctx context.Context, i pod.Instance) string
	// Drop removes the logs of an instance that is gone, and of all that its container had before it.
	Drop(last pod.Instance) error
	// Forget lets go of a revision whose files are about to be removed.
	Forget(uid pod.UID)
}

// Prober asks instances how they are and runs their hooks.
type Prober interface {
	// Set says which instances of a pod there are to be asked, all of them; it does not block.
	Set(key pod.Key, targets []probe.Target)
	// Results returns what was found of them, by their IDs; the map is the caller's.
	Results(key pod.Key) map[string]pod.Probed
	// Hook runs a hook and returns when it is done or ctx has ended.
	Hook(ctx context.Context, t probe.Target, hook *v1.LifecycleHandler) error
}

// Publisher hears how pods are. It must not block for long.
type Publisher interface {
	// Publish hears a pod with its status; settled: nothing is left to do for it now.
	Publish(p *v1.Pod, settled bool) error
	// Leaving hears that a pod is being ended for good, and again when its instances become ready or cease to be:
	// ready tells by their IDs. Else its status stays what it was.
	Leaving(key pod.Key, now time.Time, ready map[string]bool) error
	// Gone hears that nothing is left of a pod.
	Gone(key pod.Key) error
	// NotOwned hears why this process has not got the pod whose manifest is p, as another one has it; nil: it has.
	NotOwned(key pod.Key, p *v1.Pod, why *plan.Waiting) error
}

// Recorder keeps what happened. It does not block.
type Recorder interface{ Record(e pod.Event) }

// Halt has pods ended, and kept from starting, until the next one.
type Halt struct {
	// Below is the priority from which on pods are left alone; math.MinInt64: all are.
	Below int64
	// Grace is the longest that one is given to end.
	Grace time.Duration
}

// Options make a Loop.
type Options struct {
	Inspector  Inspector
	Sandboxes  runtime.Sandboxes
	Containers runtime.Containers
	Images     runtime.Images
	Data       runtime.Data
	Owners     Owners // nil: there is no other process
	Volumes    Volumes
	// Disk is asked about pods with limits of it only.
	Disk      Disk
	Logs      Logs
	Prober    Prober
	Publisher Publisher
	Events    Recorder
	// Results tells of which pods something new was found by probes.
	Results <-chan pod.Key
	// Owner is the kind of run that is written down with each pod: "serve" or "once".
	Owner string
	// Adopts says which pods that nobody wants are this loop's to end; nil: none. It is asked once everything has
	// been listed, of what was seen then.
	Adopts func(pod.Observed) bool
	// Strays are pods of which something may be left that no list shows, as a status.
	Strays []pod.Key
	// Rerun makes pods that had completed before the loop began run again.
	Rerun bool
	// LogTries is how many times in a row a round may fail before a log that cannot be written keeps no ended instance
	// from being reaped any more; 0: as many as it takes.
	LogTries int
	// Troubled hears why what was to be done for a pod has failed, whenever it did, from several goroutines; may be nil.
	Troubled func(key pod.Key, why error)
	// Hurry, once closed, has all that ends killed at once.
	Hurry <-chan struct{}
	// Halt tells that the machine shuts down, and in which order pods end for that; may be nil.
	Halt <-chan Halt
	// StopAll is asked when the loop ends whether to stop and remove every pod of it; nil: no.
	StopAll func() bool
	// Wall is the clock by which instances' times are noted down; nil: the machine's.
	Wall func() time.Time
	// Boot is the kernel's boot id.
	Boot string
	// HostIP is the node's address for statuses.
	HostIP string
	// Node is what the machine has for pods.
	Node v1.ResourceList
	// NodeLabels are what a pod's nodeSelector chooses by.
	NodeLabels map[string]string
	// MaxBackoff is the longest crash back-off; 0 means 5 minutes.
	MaxBackoff time.Duration
	// PreferLocal starts from an image that is present when one that is always pulled cannot be.
	PreferLocal bool
	// Parallel bounds how many containers are made at once, and as many are cleared away; 0 means 4.
	Parallel int
	Log      *slog.Logger
}
