package reconcile

import (
	"context"
	"reflect"
	"sync"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile/execute"
)

// desiredPod is what the loop wants of one pod name.
type desiredPod struct {
	pod *v1.Pod // nil: no manifest names the pod
	bad string  // errors in pod's manifest since pod was read
	// all decides whether a pod without a manifest stays: it stays while its manifest only cannot
	// be read. nil: the pod does not stay.
	all     *manifest.Desired
	objects pod.Objects // ConfigMaps and Secrets that pod may refer to
}

// released is the desire of a pod that no manifest names any more. The worker decides by what the
// pod runs whether it stays.
func released(d manifest.Desired) desiredPod { return desiredPod{all: &d, objects: d.Objects} }

// mailbox passes desires from the loop to one worker, and wakes the worker. Only the newest desire
// counts. Its methods are safe for concurrent use.
type mailbox struct {
	changed chan struct{}

	mu      sync.Mutex
	newest  desiredPod
	version int // incremented by put
	chosen  int // the version that read returned last; -1: read newest again
	inspect bool
	remount bool
	// halt is the newest, heeded the one that the plan whose actions are in progress was made with. nil: none.
	halt, heeded *Halt
	// performs is the pod for which actions are in progress, nil if none are; cancel ends them.
	performs *v1.Pod
	cancel   context.CancelCauseFunc
}

func newMailbox() *mailbox { return &mailbox{changed: make(chan struct{}, 1)} }

// put replaces the desire and wakes the worker, unless it is the same: a set of manifests in which one pod
// changes has all others too.
func (m *mailbox) put(d desiredPod) {
	m.mu.Lock()
	last := m.newest
	if d.pod != nil && d.pod == last.pod && d.bad == last.bad && reflect.DeepEqual(d.objects, last.objects) {
		m.mu.Unlock()
		return
	}
	m.newest = d
	m.version++
	m.cancelUnwanted()
	m.mu.Unlock()
	m.Notify()
}

// Notify wakes the worker for another sync. It does not block.
func (m *mailbox) Notify() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// Inspect wakes the worker for a sync that inspects the pod.
func (m *mailbox) Inspect() {
	m.mu.Lock()
	m.inspect = true
	m.mu.Unlock()
	m.Notify()
}

// inspects reports that Inspect was called since inspects was.
func (m *mailbox) inspects() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	inspect := m.inspect
	m.inspect = false
	return inspect
}

// Remount wakes the worker to try again at once what could not be mounted.
func (m *mailbox) Remount() {
	m.mu.Lock()
	m.remount = true
	m.mu.Unlock()
	m.Notify()
}

// remounts reports that Remount was called since remounts was.
func (m *mailbox) remounts() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	remount := m.remount
	m.remount = false
	return remount
}

// Halt wakes the worker because the machine shuts down. What it does for a pod that has to end now is given up: the
// other containers of the pod need the time.
func (m *mailbox) Halt(h *Halt) {
	m.mu.Lock()
	m.halt = h
	m.cancelHalted()
	m.mu.Unlock()
	m.Notify()
}

// heed reports that the next plan is made with the Halt h, nil if there is none: its actions are how the pod ends.
func (m *mailbox) heed(h *Halt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heeded = h
}

// cancelHalted ends the actions in progress if their pod has to end and their plan does not know that. The caller holds
// mu.
func (m *mailbox) cancelHalted() {
	ends := func(h *Halt) bool { return h != nil && pod.Priority(m.performs) < h.Below }
	if m.performs != nil && ends(m.halt) && !ends(m.heeded) {
		m.cancel(execute.ErrShutdown)
	}
}

// whileWanted returns a context for the actions on pod p. It ends when the newest desire is certain
// to have no manifest of p any more, or the machine shuts down.
func (m *mailbox) whileWanted(ctx context.Context, p *v1.Pod) (wanted context.Context, stop func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	m.performs, m.cancel = p, cancel
	if m.chosen != m.version {
		m.cancelUnwanted()
	}
	m.cancelHalted()
	return ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		cancel(nil)
		m.performs, m.cancel = nil, nil
	}
}

// cancelUnwanted ends the actions in progress if their pod is not wanted any more. The caller holds
// mu.
func (m *mailbox) cancelUnwanted() {
	d := m.newest
	if m.performs != nil && d.pod == nil && d.all != nil && !d.all.Keeps(m.performs) {
		m.cancel(nil)
	}
}

// read returns the newest desire, if it has not been read yet.
func (m *mailbox) read() (d desiredPod, unread bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.chosen == m.version {
		return desiredPod{}, false
	}
	m.chosen = m.version
	return m.newest, true
}

// reread makes the next read return the newest desire again.
func (m *mailbox) reread() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.chosen = -1
}

// empty reports that the newest desire has been read.
func (m *mailbox) empty() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.chosen == m.version
}

// pod returns the newest manifest of the pod; nil if no manifest names it.
func (m *mailbox) pod() *v1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.newest.pod
}

// dismiss reports that no manifest names the pod, and then counts the newest desire as read.
func (m *mailbox) dismiss() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.newest.pod != nil {
		return false
	}
	m.chosen = m.version
	return true
}
