package relist

import (
	"slices"
	"time"

	"podrun.io/podrun/internal/pod"
)

// Processes tells of the ends of processes. It does not depend on the runtime.
type Processes interface {
	// Watch calls ended once when the process pid has ended, which may be before the runtime knows.
	// ended does not block. Watch returns false, and never calls ended, if the process cannot be
	// watched.
	Watch(pid int, ended func()) bool
}

// eventDelay is how long after the end of a process the runtime's event may take until it has been
// answered. After that the event counts as lost.
const eventDelay = 500 * time.Millisecond

// process is a process that ends when id, an instance or a sandbox, does. pid is 0 if it is not known.
type process struct {
	id  string
	pid int
}

func processes(seen pod.Observed) (all []process) {
	for _, c := range seen.Containers {
		if c.State == pod.Running {
			all = append(all, process{c.ID, c.PID})
		}
	}
	for _, s := range seen.Sandboxes {
		if s.Ready && s.Details.PausePID > 0 {
			all = append(all, process{s.ID, s.Details.PausePID})
		}
	}
	return all
}

// watch watches the pod's processes. The caller holds mu.
func (r *Relister) watch(seen pod.Observed) {
	if r.o.Processes == nil {
		return
	}
	for _, p := range processes(seen) {
		// Once for each ID: an end that the runtime does not see must not be asked for over and over.
		if p.pid == 0 || r.watched[p.id] {
			continue
		}
		ended := func() { time.AfterFunc(eventDelay, func() { r.ended(seen.Key, p) }) }
		if r.o.Processes.Watch(p.pid, ended) {
			r.watched[p.id] = true
		}
	}
}

// ended requests an inspection of the pod of a process that ended a while ago, and a full list
// soon, unless the runtime's event was answered meanwhile.
func (r *Relister) ended(key pod.Key, p process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(processes(r.pods[key].seen), p) {
		r.overdue = append(r.overdue, key)
		r.relistSoon = true
		r.notify()
	}
}

// forgetWatched forgets the processes that are not observed any more, and reports whether all
// others are watched. The caller holds mu.
func (r *Relister) forgetWatched() (all bool) {
	if r.o.Processes == nil {
		return false
	}
	still := make(map[string]bool, len(r.watched))
	all = true
	for _, rec := range r.pods {
		for _, p := range processes(rec.seen) {
			still[p.id] = r.watched[p.id]
			all = all && r.watched[p.id]
		}
	}
	r.watched = still
	return all
}

// missed reports whether a list found an end that nothing had told of. The caller holds mu.
func (r *Relister) missed(key pod.Key, found []Event) bool {
	return len(r.inspecting[key]) == 0 && slices.ContainsFunc(found, func(e Event) bool {
		return e.Kind == Died || e.Kind == Removed || e.Kind == SandboxDied
	})
}
