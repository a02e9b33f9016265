package result

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/timeline"
)

// The defaults of Options.
const (
	DefaultCleanupTimeout = 10 * time.Second
	DefaultStable         = 3 * time.Second
	DefaultPullTimeout    = 2 * time.Minute
)

// Options are the options of a run of once.
type Options struct {
	// Timeout limits the wait for results, including the preparation. 0: no limit.
	Timeout time.Duration
	// Stable is how long a service has to be ready, without a restart, until it has its result. 0: it
	// has it as soon as it is ready.
	Stable time.Duration
	// PullTimeout is how long pulls of an image may fail or make no progress until its pod counts as
	// one that can never start. 0: no limit.
	PullTimeout time.Duration
	// Remove stops and removes all pods at the end.
	Remove bool
	// CleanupTimeout is how long cleaning up may take once the result is known and the terminating
	// pods have ended. 0: DefaultCleanupTimeout.
	CleanupTimeout time.Duration
	// Desired is called once with what is to be run, before anything is. An error ends the run. May be nil.
	Desired func(want manifest.Desired) error
	// Interrupted is called once if the context ends after pods were started. stops reports that
	// pods are being terminated, within their grace periods; otherwise only the wait for the
	// cleanup ends. May be nil.
	Interrupted func(stops bool)
	// Progress is called with each pod whose status changed, from several goroutines. May be nil.
	Progress func(p *v1.Pod)
	// Begun is called once before anything is run, with a function that returns the progress of an
	// image's pull. May be nil.
	Begun func(pulling func(image string) (pod.Progress, bool))
	// Finished is called once when the results are known, before anything is removed.
	Finished func(r Result)
	// Removing is called before the logs of a pod are removed, as reconcile.Options.Removing.
	Removing func(key pod.Key, uid pod.UID)
	// Timeline records what the pods spend their time on. May be nil.
	Timeline *timeline.Recorder
}
