package reconcile

import (
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile/eviction"
	"podrun.io/podrun/internal/reconcile/execute"
	"podrun.io/podrun/internal/reconcile/lifecycle"
	"podrun.io/podrun/internal/reconcile/publish"
	"podrun.io/podrun/internal/reconcile/pull"
	"podrun.io/podrun/internal/reconcile/record"
	"podrun.io/podrun/internal/reconcile/revision"
)

// stuck returns Stuck for one pod, or nil.
func (o *Options) stuck(key pod.Key) func(why error) {
	if o.Stuck == nil {
		return nil
	}
	return func(why error) { o.Stuck(key, why) }
}

// newWorker assembles the worker of a pod name from its parts.
func newWorker(key pod.Key, o *Options, s *shared) *worker {
	log := o.Log.With("pod", key.String())
	w := &worker{
		key:       key,
		o:         o,
		shared:    s,
		mailbox:   newMailbox(),
		log:       log,
		state:     revision.State{Earlier: o.Rerun},
		manifests: revision.NewManifests(o.Data, o.Owner, log),
		recorder:  record.NewRecorder(o.Events, key, log),
		syncs:     record.NewSyncs(key, o.Troubled, log),
	}
	w.failures = record.NewFailures(w.recorder, o.stuck(key), log)
	w.measure = eviction.New(o.Disk, o.Data, &w.goroutines, log)
	w.owner = w.newOwnership()
	w.life = lifecycle.New(lifecycle.Options{
		Key:        key,
		Prober:     o.Prober,
		Containers: o.Containers,
		Data:       o.Data,
		Manifests:  w.manifests,
		Recorder:   w.recorder,
		ProbeIP:    o.ProbeIP,
		Wall:       o.Wall,
		Goroutines: &w.goroutines,
		Log:        log,
	})
	w.puller = pull.New(pull.Options{
		Images:      o.Images,
		PreferLocal: o.PreferLocal,
		Recorder:    w.recorder,
		Failures:    w.failures,
		Began:       o.Timeline.Of(key),
		Goroutines:  &w.goroutines,
		Log:         log,
	})
	w.status = publish.New(publish.Options{
		Key:       key,
		Publisher: o.Publisher,
		Data:      o.Data,
		Order:     s.order,
		Lifecycle: w.life,
		Manifests: w.manifests,
		Devices:   o.Devices, HostIP: o.HostIP,
		Timeline: o.Timeline,
		Log:      log,
	})
	w.executor = execute.New(execute.Options{
		Key:        key,
		Sandboxes:  o.Sandboxes,
		Containers: o.Containers,
		Data:       o.Data,
		Volumes:    o.Volumes, KeepVolumes: o.KeepVolumes,
		Logs:      o.Logs,
		LogTries:  o.LogTries,
		Removing:  o.Removing,
		Evicted:   w.measure.Why,
		Slots:     s.slots,
		Resources: s.resources,
		Lifecycle: w.life,
		Puller:    w.puller,
		Manifests: w.manifests,
		Recorder:  w.recorder,
		Failures:  w.failures,
		Syncs:     w.syncs,
		Renamed:   w.status.Rename,
		Began:     o.Timeline.Of(key),
		Wall:      o.Wall,
		Node:      o.Node,
		HostIP:    o.HostIP,
		Log:       log,
	})
	return w
}

// newOwnership returns what acquires and releases the worker's pod.
func (w *worker) newOwnership() *ownership {
	return &ownership{
		key:       w.key,
		owners:    w.o.Owners,
		ends:      w.o.Terminates,
		publisher: w.o.Publisher,
		report:    w.o.Troubled,
		mailbox:   w.mailbox,
		recorder:  w.recorder,
		began:     w.o.Timeline.Of(w.key),
		log:       w.log,
	}
}
