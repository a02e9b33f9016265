// Package probe asks running containers whether they have started up, live and are ready, and runs the
// hooks of their manifests. HTTP, TCP and gRPC are spoken by podrun itself, from the node into the pod's
// network; only exec needs the runtime. It owns what was found. It restarts nothing: that is the planner's
// to judge.
package probe

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	goruntime "runtime"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// Extent is how much an instance is asked.
type Extent int

// The extents. An instance that was asked to end is asked for its readiness only, as in Kubernetes; one
// that has ended keeps what was found of it.
const (
	Nothing Extent = iota
	Readiness
	Everything
)

// Target is an instance to be asked.
type Target struct {
	ID        string
	Pod       *v1.Pod
	Container *v1.Container
	// Address is the pod's: where it is asked unless the manifest names a host.
	Address   string
	StartedAt time.Time
	Extent    Extent
	// Saved is what this very instance was found to be before, by an earlier podrun: what has started up is not
	// asked that again, and what was ready is until something else is heard of it.
	Saved pod.Probed
}

// Options make a Prober.
type Options struct {
	Exec runtime.Execer
	// Events hears of every answer that is not well.
	Events Recorder
	Log    *slog.Logger
}

// Recorder keeps what happened. It does not block.
type Recorder interface{ Record(e pod.Event) }

// Prober asks instances for as long as Run runs. Its methods may be called from any goroutine and do not
// block.
type Prober struct {
	asker
	events  Recorder
	log     *slog.Logger
	began   time.Time
	changed chan struct{} // there are fresh instances

	mu    sync.Mutex
	pods  map[pod.Key]map[string]*instance
	fresh []*instance
}

// instance is one that is asked.
type instance struct {
	Target
	key     pod.Key
	started chan struct{} // closed when it has started up
	// What follows is guarded by the Prober's mu. stop ends what is asked: its startup and liveness, and
	// its readiness.
	stop, stopReadiness context.CancelFunc
	results             pod.Probed
}

// New returns a Prober that asks nobody.
func New(o Options) *Prober {
	return &Prober{
		asker: newAsker(o.Exec, 2*goruntime.NumCPU()), events: o.Events, log: o.Log, began: time.Now(),
		changed: make(chan struct{}, 1), pods: map[pod.Key]map[string]*instance{},
	}
}

func newAsker(exec runtime.Execer, parallel int) asker {
	return asker{exec: exec, slots: make(chan struct{}, parallel), transport: newTransport()}
}

// Set says which instances of a pod there are to be asked, all of them. What was found of others is
// forgotten.
func (p *Prober) Set(key pod.Key, targets []Target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.pods[key]
	if len(targets) == 0 && before == nil {
		return
	}
	now := map[string]*instance{}
	for _, t := range targets {
		i := before[t.ID]
		switch {
		case i != nil:
			i.narrow(t.Extent)
		case t.Extent != Nothing:
			i = newInstance(key, t)
			p.fresh = append(p.fresh, i)
			p.notify()
		}
		if i != nil {
			now[t.ID] = i
		}
	}
	for id, i := range before {
		if now[id] == nil {
			i.narrow(Nothing)
		}
	}
	p.pods[key] = now
	if len(now) == 0 {
		delete(p.pods, key)
	}
}

func newInstance(key pod.Key, t Target) *instance {
	i := &instance{Target: t, key: key, started: make(chan struct{}), stop: func() {}, stopReadiness: func() {}, results: t.Saved}
	if t.Saved.IsStarted(t.Container) {
		close(i.started)
	}
	return i
}

// narrow lets go of what is no longer asked for. It never widens.
func (i *instance) narrow(to Extent) {
	i.Extent = min(i.Extent, to)
	if i.Extent < Everything {
		i.stop()
	}
	if i.Extent < Readiness {
		i.stopReadiness()
	}
}

// begin makes the contexts that the instance is asked under.
func (p *Prober) begin(ctx context.Context, i *instance) (all, ready context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all, i.stop = context.WithCancel(ctx)
	ready, i.stopReadiness = context.WithCancel(ctx)
	i.narrow(i.Extent)
	return all, ready
}

func (p *Prober) notify() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// Results returns what was found of a pod's instances, by their IDs.
func (p *Prober) Results(key pod.Key) map[string]pod.Probed {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pods[key]) == 0 {
		return nil
	}
	found := map[string]pod.Probed{}
	for id, i := range p.pods[key] {
		found[id] = i.results
	}
	return found
}

// Run asks until ctx ends, and says of which pod something new was found.
func (p *Prober) Run(ctx context.Context, out chan<- pod.Key) error {
	var asking sync.WaitGroup
	defer asking.Wait()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.changed:
		}
		p.mu.Lock()
		fresh := p.fresh
		p.fresh = nil
		p.mu.Unlock()
		for _, i := range fresh {
			all, ready := p.begin(ctx, i)
			for kind, spec := range probesOf(i.Container) {
				if kind == startup && i.Saved.IsStarted(i.Container) {
					continue
				}
				under := all
				if kind == readiness {
					under = ready
				}
				asking.Go(func() { p.watch(under, out, i, watch{kind: kind, spec: spec}) })
			}
		}
	}
}

// The kinds of probes, as they are called in messages.
const (
	startup   = "startup"
	liveness  = "liveness"
	readiness = "readiness"
)

// probesOf are the probes that c has.
func probesOf(c *v1.Container) map[string]*v1.Probe {
	all := map[string]*v1.Probe{startup: c.StartupProbe, liveness: c.LivenessProbe, readiness: c.ReadinessProbe}
	maps.DeleteFunc(all, func(_ string, spec *v1.Probe) bool { return spec == nil })
	return all
}

// newTransport makes a connection a request, as for a client that has not been there before, and takes any
// certificate: a probe asks whether something answers, not who.
func newTransport() *http.Transport {
	return &http.Transport{
		DisableKeepAlives: true, DisableCompression: true, Proxy: nil,
		TLSClientConfig: anyCertificate(), DialContext: dialer().DialContext,
	}
}
