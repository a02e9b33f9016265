package reconcile

import (
	"log/slog"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
)

// newWorker assembles the worker of a pod name from its parts.
func newWorker(key pod.Key, o *Options, s *shared) *worker {
	log := o.Log.With("pod", key.String())
	w := &worker{
		key:       key,
		o:         o,
		shared:    s,
		mailbox:   newMailbox(),
		log:       log,
		trouble:   &trouble{key: key, report: o.Troubled, log: log},
		recorder:  &recorder{events: o.Events, key: key, log: log},
		manifests: &manifests{data: o.Data, owner: o.Owner, log: log},
		state:     state{earlier: o.Rerun},
	}
	w.instances = newInstances(o.Wall)
	results := &probeResults{key: key, prober: o.Prober, hooks: newHooks(), instances: w.instances}
	w.hooks = &hookRunner{
		results:   results,
		notes:     &notes{data: o.Data, results: results, log: log},
		manifests: w.manifests,
		hostIP:    o.HostIP,
		recorder:  w.recorder,
		log:       log,
		beside:    &w.beside,
		done:      make(chan hookResult),
	}
	w.failures = &failures{last: map[string]plan.Failure{}, recorder: w.recorder, log: log}
	w.puller = &puller{
		images:      o.Images,
		preferLocal: o.PreferLocal,
		recorder:    w.recorder,
		failures:    w.failures,
		log:         log,
		beside:      &w.beside,
		all:         map[string]*image{},
		results:     make(chan pullResult),
	}
	w.measure = newMeasurement(o.Disk, o.Data, &w.beside, log)
	w.owner = &ownership{
		key:       key,
		owners:    o.Owners,
		adopts:    o.Adopts,
		publisher: o.Publisher,
		report:    o.Troubled,
		mailbox:   w.mailbox,
		recorder:  w.recorder,
		log:       log,
	}
	w.status = &statusPublisher{
		key:       key,
		publisher: o.Publisher,
		data:      o.Data,
		order:     s.order,
		hooks:     w.hooks,
		manifests: w.manifests,
		hostIP:    o.HostIP,
		log:       log,
	}
	w.starter = &starter{
		key:        key,
		shared:     s,
		sandboxes:  o.Sandboxes,
		containers: o.Containers,
		volumes:    o.Volumes,
		puller:     w.puller,
		manifests:  w.manifests,
		recorder:   w.recorder,
		wall:       w.instances.clock.wall,
		node:       o.Node,
		hostIP:     o.HostIP,
	}
	w.executor = newExecutor(w, log)
	return w
}

// newExecutor assembles the executor of w.
func newExecutor(w *worker, log *slog.Logger) *executor {
	o := w.o
	return &executor{
		starter: w.starter,
		remover: &remover{
			key:        w.key,
			slot:       w.shared.slots.Remove,
			sandboxes:  o.Sandboxes,
			containers: o.Containers,
			data:       o.Data,
			volumes:    o.Volumes,
			logs:       o.Logs,
			logTries:   o.LogTries,
			trouble:    w.trouble,
			instances:  w.instances,
			hooks:      w.hooks.results.hooks,
			log:        log,
		},
		terminator: &terminator{containers: o.Containers, instances: w.instances, notes: w.hooks.notes},
		hooks:      w.hooks,
		puller:     w.puller,
		failures:   w.failures,
		status:     w.status,
		log:        log,
	}
}
