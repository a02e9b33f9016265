package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"podrun.io/podrun/internal/agent/images"
	"podrun.io/podrun/internal/agent/nodeinfo"
	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/agent/problems"
	"podrun.io/podrun/internal/agent/record"
	"podrun.io/podrun/internal/agent/sdnotify"
	"podrun.io/podrun/internal/agent/shutdown"
	"podrun.io/podrun/internal/agent/sources"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/server"
	"podrun.io/podrun/internal/status"
	"podrun.io/podrun/internal/sys/heap"
)

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
	from := o.opener()
	from.CacheDir, from.Lasting = o.Dirs.Manifests(), true
	if _, err := from.Open(); err != nil { // check the options before anything is started
		return err
	}
	lock, err := owner.LockRun(o.Dirs, owner.Serve)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	files := status.NewFiles(o.Dirs)
	info := nodeinfo.New(nodeinfo.Options{Dirs: o.Dirs, NodeName: o.NodeName, Files: files, Log: o.Log})
	defer info.Close()
	if o.machine == nil {
		err = info.Listen(o.Listen)
	}
	if errors.Is(err, server.ErrAddress) {
		return sources.Usage(err)
	}
	if err != nil {
		return err
	}
	known := record.New(files)
	a, err := open(ctx, o, role{
		owner: owner.Serve, locks: o.newLocks(owner.Serve), publisher: known,
		observer: info.Observer(), probes: info.Probes(),
	})
	if err != nil {
		return err
	}
	defer a.close()
	a.sweep(ctx)
	notify := sdnotify.Notifier{Watchdog: o.Watchdog, Log: o.Log}
	a.loadArchives(ctx, notify)
	known.Answer(owner.NewJobRequests(o.Dirs, o.Log), owner.NewUndoRequests(o.Dirs, o.Log), a.events)
	stored, err := record.Restore(known.At(a.loop.Boot, a.loop.Wall, a.relister.Outage, o.Log), a.runtime.Store())
	if err != nil {
		return err
	}
	from.Adopt(stored, known, a.network.SharesPorts)
	all, err := from.Open()
	if err != nil {
		return err
	}
	from.Prune()
	if a.loop.Strays, err = status.Keys(o.Dirs); err != nil {
		return err
	}
	s := service{agent: a, info: info, record: known, notify: notify, ping: make(chan struct{})}
	a.loop.Terminates = func(seen pod.Observed) bool { return seen.Owner == owner.Serve || len(seen.Data) == 0 }
	s.images, s.pods = s.newImages(), s.newPods()
	serving, end := s.pods.Outlive(ctx)
	defer end(nil)
	removed := func() bool { return errors.Is(context.Cause(serving), errRunRemoved) }
	a.loop.Ping, a.loop.Timeline = s.ping, info.Timeline
	a.loop.StopAll = s.pods.StopAll(func() bool { return stopPods && !removed() })
	o.Log.Info("serving", "manifests", sources.Names(all), "node", o.NodeName)
	desired := make(chan manifest.Desired)
	a.run(serving, desired, func(ctx context.Context) {
		in := make(chan manifest.Desired)
		var running sync.WaitGroup
		defer running.Wait()
		running.Go(func() { from.Watched(info.Read).Run(ctx, all, in, a.ended) })
		running.Go(func() { lock.Watch(ctx, func() { end(errRunRemoved) }) })
		s.start(ctx, &running)
		s.pass(ctx, in, desired)
	})
	if removed() {
		return errRunRemoved
	}
	files.Touch()
	return nil
}

// loadArchives loads the image archives. No pod starts before: an archive may have another image under the name of one
// that is present.
func (a *agent) loadArchives(ctx context.Context, notify sdnotify.Notifier) {
	if a.conn == nil {
		return
	}
	archives := a.o.archives()
	archives.Loading = func(file string) func() { return notify.Starting(fmt.Sprintf("Loading %q", file)) }
	archives.Load(ctx, a.conn.Driver)
}

// service is a serve that runs.
type service struct {
	*agent
	info   *nodeinfo.Server
	record *record.Record
	images *images.Service
	notify sdnotify.Notifier
	ping   chan struct{} // from notify to the loop
	pods   *shutdown.Pods
}

// start starts what serve does besides running pods, until ctx ends.
func (s *service) start(ctx context.Context, running *sync.WaitGroup) {
	if err := s.o.Settings.Save(s.o.Dirs); err != nil {
		s.o.Log.Warn("podrun diff cannot show what this serve would do", "err", err)
	}
	running.Go(func() { s.notify.Run(ctx, s.ping) })
	if s.o.machine == nil {
		parts := nodeinfo.Parts{Relister: s.relister, Keeper: s.images.Keeper, Config: s.o.Config}
		if s.conn != nil {
			parts.Containerd, parts.Network = s.conn.Driver.ServerVersion, s.conn.Sandboxes.Network
			parts.Disks = nodeinfo.NewDisks(s.o.Dirs, s.conn.Driver, s.volumes.CSI().Usage)
		}
		running.Go(func() { heap.Tune(ctx, s.o.Log) })
		running.Go(func() { s.ended("jobs", s.record.Run(ctx)) })
		running.Go(func() { s.ended("http", s.info.Run(ctx, parts)) })
	}
	running.Go(func() { s.ended("logind", s.pods.Run(ctx)) })
	running.Go(func() { s.ended("images", s.images.Run(ctx)) })
}

func (s *service) newImages() *images.Service {
	all := &images.Service{Archives: s.o.archives(), Updater: &images.Updater{
		Times: s.o.Updates, Images: s.runtime, Record: s.record, Events: s.events, Wall: s.loop.Wall, Log: s.o.Log,
	}}
	if s.conn != nil {
		all.Keeper = images.NewKeeper(s.o.Dirs, s.conn.Driver, s.runtime, s.o.Garbage, s.o.Log)
	}
	return all
}

// newPods returns what terminates the pods when the machine shuts down.
func (s *service) newPods() *shutdown.Pods {
	o, m := s.o, s.notify
	return &shutdown.Pods{Options: o.Halt, Runtime: s.runtime, Volumes: s.volumes.CSI(), Loop: s.halt,
		Terminates: s.loop.Terminates, Manager: m, Hurry: o.Hurry, Log: o.Log}
}

// pass stores, logs and passes on the desired sets of the sources until ctx ends.
func (s *service) pass(ctx context.Context, in <-chan manifest.Desired, out chan<- manifest.Desired) {
	ready := false
	logged := problems.Log{Events: s.events}
	files := s.o.Dirs.StatusFiles()
	file, workloads := problems.NewFile(files.ManifestProblems()), status.NewWorkloadsFile(files.Workloads())
	for {
		select {
		case <-ctx.Done():
			return
		case want := <-in:
			s.images.Want(want)
			s.info.SetDesired(want)
			logged.Report(s.o.Log, want)
			saved := errors.Join(file.Write(want.Problems), workloads.Write(want))
			if err := saved; err != nil {
				s.o.Log.Warn("podrun get cannot show manifest problems or workloads", "err", err)
			}
			select {
			case out <- want:
				// Be ready although a source cannot be read: serve the pods of the others.
				if !ready && (want.Complete || len(want.Problems) > 0) {
					ready = true
					s.notify.Ready(len(want.Pods))
				}
			case <-ctx.Done():
				return
			}
		}
	}
}
