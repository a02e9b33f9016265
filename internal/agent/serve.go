package agent

import (
	"context"
	"errors"
	"sync"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status"
)

// The owners that are saved with pods: which command runs them.
const (
	ownerServe = "serve"
	ownerOnce  = "once"
)

// commandDown is the command that removes pods. It holds the lock of the run directory while it
// runs.
const commandDown = "down"

// errRunRemoved ends a serve whose run directory was removed.
var errRunRemoved = errors.New("the run directory was removed")

// Serve keeps the pods of all sources running until ctx ends. They keep running after that, unless
// stopPods is set. If the run directory is removed, together with the statuses, the socket and the
// state of podrun's own containerd, Serve starts from the beginning.
func Serve(ctx context.Context, o Options, stopPods bool) error {
	for {
		err := serve(ctx, o, stopPods)
		if !errors.Is(err, errRunRemoved) {
			return err
		}
		o.Log.Warn("the run directory was removed; restarting", "directory", o.Dirs.Run)
	}
}

func serve(ctx context.Context, o Options, stopPods bool) error {
	cache := cacheOptions{dir: o.Dirs.Manifests()}
	o.Sources.Lasting = true
	if _, err := o.sources(cache, nil); err != nil { // check the options before anything is started
		return err
	}
	lock, err := lockServe(o.Dirs, ownerServe)
	if err != nil {
		return err
	}
	defer lock.unlock()
	d, err := newDesk(&o)
	if err != nil {
		return err
	}
	defer d.close()
	h, err := open(ctx, o, ownerServe, d.files)
	if err != nil {
		return err
	}
	defer h.close()
	h.sweep(ctx)
	if err := h.o.locks.Sweep(); err != nil {
		h.o.Log.Warn("removing leftover pod locks failed", "err", err)
	}
	if h.conn != nil {
		o.loadImages(ctx, h.conn.Driver)
	}
	running, err := h.origins()
	if err != nil {
		return err
	}
	all, err := o.sources(cache, running)
	if err != nil {
		return err
	}
	prune(cache.dir, o.Sources, o.Log)
	if h.loop.Strays, err = status.Keys(o.Dirs); err != nil {
		return err
	}
	if h.conn != nil {
		d.keeper, d.disks = h.newKeeper(), h.disks()
	}
	serving, end := context.WithCancelCause(ctx)
	defer end(nil)
	removed := func() bool { return errors.Is(context.Cause(serving), errRunRemoved) }
	h.loop.StopAll = func() bool { return stopPods && !removed() }
	h.loop.Adopts = func(seen pod.Observed) bool { return seen.Owner == ownerServe || len(seen.Data) == 0 }
	h.o.Log.Info("serving", "manifests", sourceNames(all), "node", o.NodeName)
	tell := notifier{o.Notify, o.Log}
	defer context.AfterFunc(ctx, func() { tell.say("STOPPING=1") })()
	h.run(serving, func(ctx context.Context, out chan<- manifest.Desired) {
		in := make(chan manifest.Desired)
		var reading sync.WaitGroup
		defer reading.Wait()
		reading.Go(func() { read(ctx, all, running, in, h.ended) })
		reading.Go(func() { tell.keep(ctx, h.probeChanges) })
		reading.Go(func() { lock.watch(ctx, func() { end(errRunRemoved) }) })
		h.beside(ctx, d, &reading)
		h.pass(ctx, d, tell, in, out)
	})
	if removed() {
		return errRunRemoved
	}
	d.files.Touch()
	return nil
}

// pass stores, logs and passes on the desired sets of the sources until ctx ends.
func (h *house) pass(
	ctx context.Context, d *desk, tell notifier, in <-chan manifest.Desired, out chan<- manifest.Desired,
) {
	ready := false
	told := problemLog{events: h.events}
	shown := problemFile{path: h.o.Dirs.StatusFiles().ManifestProblems()}
	for {
		select {
		case <-ctx.Done():
			return
		case want := <-in:
			d.want(want)
			told.report(h.o.Log, want)
			if err := shown.write(want.Problems); err != nil {
				h.o.Log.Warn("podrun get cannot show manifest problems", "err", err)
			}
			select {
			case out <- want:
				// Be ready although a source cannot be read: serve the pods of the others.
				if !ready && (want.Complete || len(want.Problems) > 0) {
					ready = true
					tell.ready(len(want.Pods))
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// beside starts what serve does besides running pods, until ctx ends.
func (h *house) beside(ctx context.Context, d *desk, running *sync.WaitGroup) {
	if h.o.machine == nil {
		running.Go(func() { keepSmall(ctx, h.o.Log) })
		running.Go(func() { h.ended("http", d.run(ctx, h.relister)) })
	}
	h.awaitShutdown(ctx, running)
	if d.keeper != nil {
		running.Go(func() { h.ended("gc", d.keeper.Run(ctx)) })
	}
}
