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

// HaltOptions say how pods end when the machine shuts down.
type HaltOptions struct {
	// Grace is the longest that all of it may take; 0: pods are not ended.
	Grace time.Duration
	// Critical is what of it is kept for pods of critical priority, which end last.
	Critical time.Duration
	// Bus is D-Bus' address; empty: the system's.
	Bus string
}

// halting ends the pods of a house in the order of their priority; it is logind's Shutdown.
type halting struct {
	h  *house
	to chan reconcile.Halt
}

// awaitShutdown ends pods in order when the machine shuts down, until ctx ends.
func (h *house) awaitShutdown(ctx context.Context, running *sync.WaitGroup) {
	if h.o.Halt.Grace <= 0 {
		return
	}
	w := nodeshutdown.New(nodeshutdown.Options{Address: h.o.Halt.Bus, Most: h.o.Halt.Grace, Shutdown: halting{h, h.halt}, Log: h.o.Log})
	running.Go(func() { h.ended("logind", w.Run(ctx)) })
}

// Begin implements nodeshutdown.Shutdown.
func (s halting) Begin(ctx context.Context, within time.Duration) {
	critical := min(s.h.o.Halt.Critical, within)
	s.end(ctx, reconcile.CriticalPriority, within-critical)
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
		s.h.o.Log.Error("pods are not told of the machine's shutdown")
		return false
	}
}

// seenEvery is how often it is looked whether pods have ended.
const seenEvery = 100 * time.Millisecond

// end ends the pods below a priority and returns when none of them runs, or the time is over.
func (s halting) end(ctx context.Context, below int64, within time.Duration) {
	end := time.Now().Add(within)
	for told := false; !told; { // a busy loop hears of it late, and gives what is left
		left := time.Until(end)
		if ctx.Err() != nil || left <= 0 {
			return
		}
		// Not quite all of it is grace: to kill takes time too.
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
			s.h.o.Log.Warn("not all pods have ended in the time that the machine's shutdown gives them")
			return
		case <-every.C:
		}
	}
}

// living reports that something runs of a pod below the priority, or that it is not known.
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
			if p, err := s.h.runtime.LoadPod(c.UID); err == nil && reconcile.Priority(p) < below {
				return true
			}
		}
	}
	return false
}
