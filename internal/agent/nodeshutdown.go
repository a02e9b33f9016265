package agent

import (
	"context"
	"math"
	"sync"
	"time"

	"podrun.io/podrun/internal/nodeshutdown"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile"
)

// HaltOptions say how pods are terminated when the machine shuts down.
type HaltOptions struct {
	// Grace is the longest that the termination of all pods may take. 0: pods are not terminated.
	Grace time.Duration
	// Critical is the part of Grace that is reserved for pods with critical priority, which are
	// terminated last.
	Critical time.Duration
	// Bus is the address of D-Bus. Empty: the system bus.
	Bus string
}

// halting terminates the pods of a house in the order of their priority. It implements
// nodeshutdown.Shutdown.
type halting struct {
	h  *house
	to chan reconcile.Halt
}

// awaitShutdown terminates pods in order when the machine shuts down, until ctx ends.
func (h *house) awaitShutdown(ctx context.Context, running *sync.WaitGroup) {
	if h.o.Halt.Grace <= 0 {
		return
	}
	w := nodeshutdown.New(nodeshutdown.Options{
		Address:  h.o.Halt.Bus,
		Most:     h.o.Halt.Grace,
		Shutdown: halting{h, h.halt},
		Log:      h.o.Log,
	})
	running.Go(func() { h.ended("logind", w.Run(ctx)) })
}

// Begin implements nodeshutdown.Shutdown.
func (s halting) Begin(ctx context.Context, within time.Duration) {
	critical := min(s.h.o.Halt.Critical, within)
	s.end(ctx, pod.CriticalPriority, within-critical)
	s.end(ctx, math.MaxInt64, max(critical, 0))
}

// Cancel implements nodeshutdown.Shutdown.
func (s halting) Cancel() { s.send(context.Background(), reconcile.Halt{Below: math.MinInt64}) }

func (s halting) send(ctx context.Context, h reconcile.Halt) bool {
	select {
	case s.to <- h:
		return true
	case <-ctx.Done():
		return false
	case <-time.After(time.Second):
		s.h.o.Log.Error("machine shutdown: the pod loop does not respond")
		return false
	}
}

// seenEvery is how often the terminating pods are checked.
const seenEvery = 100 * time.Millisecond

// end terminates the pods below a priority and returns when none of them runs or the time is over.
func (s halting) end(ctx context.Context, below int64, within time.Duration) {
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
	for s.living(ctx, below) {
		select {
		case <-ctx.Done():
			return
		case <-deadline.C:
			s.h.o.Log.Warn("machine shutdown: pods still running at the end of the grace period")
			return
		case <-every.C:
		}
	}
}

// living reports that an instance of a pod below the priority runs, or that this is not known.
func (s halting) living(ctx context.Context, below int64) bool {
	all, err := s.h.runtime.List(ctx)
	if err != nil {
		return true
	}
	for _, o := range all {
		for _, c := range o.Containers {
			if c.State != pod.Running {
				continue
			}
			if p, err := s.h.runtime.LoadPod(c.UID); err == nil && pod.Priority(p) < below {
				return true
			}
		}
	}
	return false
}
