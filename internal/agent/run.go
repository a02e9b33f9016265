package agent

import (
	"context"
	"errors"
	"sync"

	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/reconcile"
	"podrun.io/podrun/internal/relist"
)

// run runs the loop with the desired sets until ctx ends, and beside runs beside it. The parts that
// the loop depends on are stopped after it.
func (a *agent) run(ctx context.Context, desired <-chan manifest.Desired, beside func(context.Context)) {
	heartbeat, err := owner.StartHeartbeat(a.o.Dirs)
	if err != nil {
		a.o.Log.Warn("podrun get cannot show the age of statuses", "err", err)
	} else {
		defer heartbeat.Stop()
	}
	beneath, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	events := make(chan relist.Event)
	running.Go(func() { a.ended("relist", a.relister.Run(beneath, events)) })
	running.Go(func() { a.ended("probe", a.prober.Run(beneath, a.probeChanges)) })
	running.Go(func() { a.ended("events", a.events.Run(beneath)) })
	running.Go(func() { a.ended("logs", a.tailer.Run(beneath)) })
	running.Go(func() { a.ended("names", a.names.Run(beneath, a.volumes)) })
	if heartbeat != nil {
		running.Go(func() { heartbeat.Run(beneath) })
	}
	if a.owner == owner.Serve { // others leave to it what they could not unpublish
		running.Go(func() { a.ended("csi", a.volumes.CSI().Run(beneath)) })
	}
	if m := a.o.machine; m != nil && m.plugins != nil {
		running.Go(func() { m.plugins(beneath, a.volumes) })
	}
	running.Go(func() { a.ended("restarts", a.requests.Run(beneath)) })
	if a.conn != nil {
		running.Go(func() { a.ended("address", a.address.Run(beneath, a.retry)) })
		running.Go(func() { a.conn.Keep(beneath) })
		running.Go(func() { a.ended("plugins", a.conn.RunPlugins(beneath, a.volumes.CSI())) })
		running.Go(func() { a.conn.SweepNetwork(beneath, a.network.SweepLost) })
		running.Go(func() { a.ended("network", a.network.Watch(beneath)) })
	}
	besides, stopBesides := context.WithCancel(ctx)
	defer stopBesides()
	running.Go(func() { beside(besides) })
	a.ended("loop", reconcile.NewLoop(a.loop).Run(ctx, desired, events))
}

// ended logs that an actor (a part with its own goroutine) ended although it was not cancelled.
func (a *agent) ended(actor string, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		a.o.Log.Error("actor ended unexpectedly", "actor", actor, "err", err)
	}
}

// send gives the loop a desired set, unless ctx ends before.
func send(ctx context.Context, out chan<- manifest.Desired, d manifest.Desired) {
	select {
	case out <- d:
	case <-ctx.Done():
	}
}
