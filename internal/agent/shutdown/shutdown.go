// Package shutdown terminates pods when the machine shuts down: first those of normal priority,
// then the critical ones, within the time that systemd-logind grants.
//
// The package does not terminate pods itself: it sends a reconcile.Halt to the loop of package
// reconcile, which does. How logind is asked for time is package nodeshutdown.
//
// Begin reading at Pods.
package shutdown

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/nodeshutdown"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile"
)

// Options say how pods are terminated when the machine shuts down.
type Options struct {
	// Grace is the longest that the termination of all pods may take. 0: pods are not terminated.
	Grace time.Duration
	// Critical is the part of Grace that is reserved for pods with critical priority, which are
	// terminated last. They also have what the others leave of Grace. See leastTime.
	Critical time.Duration
	// Bus is the address of D-Bus. Empty: the system bus.
	Bus string
}

// Runtime reads which pods run.
type Runtime interface {
	List(ctx context.Context) ([]pod.Observed, error)
	LoadPod(uid pod.UID) (*v1.Pod, error)
}

// Volumes are those of CSI drivers.
type Volumes interface {
	// Holders returns the pods that have some, also those that are gone, and whether a driver is being called.
	Holders() (uids []pod.UID, calling bool)
}

// Pods are the pods to terminate. They implement nodeshutdown.Shutdown.
type Pods struct {
	Options
	Runtime Runtime
	Volumes Volumes
	// Terminates reports whether serve terminates a pod. Others, such as what podrun once has left running, are not
	// waited for.
	Terminates func(pod.Observed) bool
	// Loop receives the orders. It is the other end of reconcile.Options.Halt.
	Loop chan<- reconcile.Halt
	// Manager is told when serve stops; see Outlive.
	Manager Manager
	// Hurry, once closed, ends the wait of Outlive. May be nil.
	Hurry <-chan struct{}
	Log   *slog.Logger

	mu sync.Mutex // held while pods are terminated
	// terminated: the pods have been terminated since the last Cancel. Guarded by mu.
	terminated bool
}

// Run waits for the machine's shutdown and then terminates the pods in order, until ctx ends. It
// returns at once if the options say that pods are not terminated.
func (s *Pods) Run(ctx context.Context) error {
	if s.Grace <= 0 {
		return nil
	}
	return nodeshutdown.New(nodeshutdown.Options{
		Address: s.Bus, Most: s.Grace, Shutdown: s, Log: s.Log,
	}).Run(ctx)
}

// Begin implements nodeshutdown.Shutdown. A service manager that waits for serve gives the pods all of
// Grace, however little logind grants. logind and the service manager both begin the same shutdown:
// the second call waits for the end of the first.
func (s *Pods) Begin(ctx context.Context, within time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.terminated {
		return
	}
	s.terminated = true
	if s.Manager.Waits() {
		within = s.Grace
	}
	end, critical := time.Now().Add(within), s.critical(within)
	s.end(ctx, pod.CriticalPriority, within-critical)
	s.end(ctx, math.MaxInt64, max(time.Until(end), critical))
	select {
	case <-ctx.Done():
	case <-time.After(recordTime):
	}
}

// leastTime is what is reserved at least for the pods of critical priority, and for the others, however the options
// share out the time; or a tenth of it, if that is less. It is the shortest time that a container has after its stop
// signal.
const leastTime = 2 * time.Second

// critical returns the part of the time within that is reserved for pods with critical priority. If it is less than
// Grace, both parts are less in proportion.
func (o Options) critical(within time.Duration) time.Duration {
	critical := o.Critical
	if within < o.Grace {
		critical = time.Duration(critical.Seconds() / o.Grace.Seconds() * float64(within))
	}
	least := min(leastTime, within/10)
	return min(max(critical, least), within-least)
}

// Cancel implements nodeshutdown.Shutdown. It returns when the loop knows, which may be busy.
func (s *Pods) Cancel(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.terminated = false
	for ctx.Err() == nil && !s.send(ctx, reconcile.Halt{Below: math.MinInt64}) {
	}
}

func (s *Pods) send(ctx context.Context, h reconcile.Halt) bool {
	select {
	case s.Loop <- h:
		return true
	case <-ctx.Done():
		return false
	case <-time.After(time.Second):
		s.Log.Error("machine shutdown: the pod loop does not respond")
		return false
	}
}

// seenEvery is how often the terminating pods are checked.
const seenEvery = 100 * time.Millisecond

// recordTime is how long the loop has, when no pod runs any more, to record how the last ones ended.
const recordTime = 2 * seenEvery

// releaseTime is how long no CSI driver may be called although volumes are left, until they are given up: their drivers
// do not run, or fail. One that is being called is waited for.
const releaseTime = 5 * time.Second

// end terminates the pods below a priority and returns when nothing of them is left or the time is over.
func (s *Pods) end(ctx context.Context, below int64, within time.Duration) {
	end := time.Now().Add(within)
	for told := false; !told; { // a busy loop receives it late, so compute the remaining time again
		left := time.Until(end)
		if ctx.Err() != nil || left <= 0 {
			return
		}
		// Not all of it is the grace period: a kill takes time too.
		told = s.send(ctx, reconcile.Halt{Below: below, Grace: left - left/10})
	}
	deadline := time.NewTimer(time.Until(end))
	defer deadline.Stop()
	every := time.NewTicker(seenEvery)
	defer every.Stop()
	var enough <-chan time.Time
	for {
		busy, left := s.left(ctx, below)
		switch {
		case !busy && !left:
			return
		case busy:
			enough = nil
		case enough == nil:
			enough = time.After(releaseTime)
		}
		select {
		case <-ctx.Done():
			return
		case <-enough:
			s.Log.Warn("machine shutdown: CSI drivers have not unmounted all volumes")
			return
		case <-deadline.C:
			s.Log.Warn("machine shutdown: pods still running at the end of the grace period")
			return
		case <-every.C:
		}
	}
}

// left reports whether an instance of a pod that is terminated runs or a CSI driver is being called, or that this is
// not known; and whether drivers have volumes of such pods to unmount before they end themselves.
func (s *Pods) left(ctx context.Context, below int64) (busy, volumes bool) {
	all, err := s.Runtime.List(ctx)
	if err != nil {
		return true, true
	}
	others := map[pod.UID]bool{}
	for _, o := range all {
		if !s.Terminates(o) {
			for _, uid := range o.Data {
				others[uid] = true
			}
			continue
		}
		busy = busy || slices.ContainsFunc(o.Containers, func(c pod.Container) bool {
			if c.State != pod.Running {
				return false
			}
			p, err := s.Runtime.LoadPod(c.UID)
			return err == nil && pod.Priority(p) < below
		})
	}
	if below > pod.CriticalPriority { // the drivers end now
		return busy, false
	}
	holders, calling := s.Volumes.Holders()
	return busy || calling, slices.ContainsFunc(holders, func(uid pod.UID) bool {
		p, err := s.Runtime.LoadPod(uid)
		return !others[uid] && (err != nil || pod.Priority(p) < below) // a pod that is removed has no manifest
	})
}
