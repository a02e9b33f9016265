// Package probe runs the startup, liveness and readiness probes of running containers, and their
// postStart and preStop hooks. podrun itself makes the HTTP, TCP and gRPC requests, from the node
// into the pod's network; only exec probes and hooks need the container runtime.
//
// The package owns the probe results until they are forgotten with their instance. It restarts
// nothing: package plan decides that from the results. Begin reading at [Prober].
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

// Extent says which of an instance's probes run.
type Extent int

// The extents. An instance that was asked to exit runs only its readiness probe, as in Kubernetes;
// one that has exited runs none but keeps its results.
const (
	Nothing Extent = iota
	Readiness
	Everything
)

// Target is an instance to be probed.
type Target struct {
	ID        string
	Pod       *v1.Pod
	Container *v1.Container
	// Address is the pod's address, to which requests go unless the manifest names a host.
	Address   string
	StartedAt time.Time
	Extent    Extent
	// Saved are the results of this same instance from an earlier podrun process: a startup probe
	// that has succeeded does not run again, and a ready instance stays ready until its readiness
	// probe fails.
	Saved pod.Probed
}

// Options are the dependencies of a Prober.
type Options struct {
	Exec runtime.Execer
	// Events records every probe result that is not a success.
	Events Recorder
	// Observer may be nil.
	Observer Observer
	Log      *slog.Logger
}

// Recorder records events; event.Recorder implements it. Record must not block.
type Recorder interface{ Record(e pod.Event) }

// Prober probes instances while Run is running. Its methods may be called from any goroutine and do
// not block.
type Prober struct {
	asker
	events   Recorder
	observer Observer
	log      *slog.Logger
	began    time.Time
	changed  chan struct{} // signals new entries in fresh

	mu    sync.Mutex
	pods  map[pod.Key]map[string]*instance
	fresh []*instance
}

// instance is an instance that is probed.
type instance struct {
	Target
	key     pod.Key
	started chan struct{} // closed when the instance has started
	// The following fields are guarded by the Prober's mu. stop ends the startup and liveness
	// probes, stopReadiness the readiness probe.
	stop, stopReadiness context.CancelFunc
	results             pod.Probed
}

// New returns a Prober without any instances.
func New(o Options) *Prober {
	p := &Prober{
		asker: newAsker(o.Exec, 2*goruntime.NumCPU()), events: o.Events, observer: o.Observer, log: o.Log,
		began: time.Now(), changed: make(chan struct{}, 1), pods: map[pod.Key]map[string]*instance{},
	}
	if p.observer == nil {
		p.observer = noopObserver{}
	}
	return p
}

func newAsker(exec runtime.Execer, parallel int) asker {
	return asker{exec: exec, slots: make(chan struct{}, parallel), transport: newTransport()}
}

// Set sets all instances of a pod that are to be probed. The results of other instances of the pod
// are forgotten.
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
			i.Address = t.Address // the machine's may change
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
	p.forgotten(key, before, now)
	p.pods[key] = now
	if len(now) == 0 {
		delete(p.pods, key)
	}
}

func newInstance(key pod.Key, t Target) *instance {
	i := &instance{
		Target: t, key: key, started: make(chan struct{}), stop: func() {}, stopReadiness: func() {}, results: t.Saved,
	}
	if t.Saved.IsStarted(t.Container) {
		close(i.started)
	}
	return i
}

// narrow stops the probes that the extent no longer includes. It never starts any.
func (i *instance) narrow(to Extent) {
	i.Extent = min(i.Extent, to)
	if i.Extent < Everything {
		i.stop()
	}
	if i.Extent < Readiness {
		i.stopReadiness()
	}
}

// begin creates the contexts under which the instance's probes run.
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

// Results returns the results of a pod's instances, by instance ID.
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

// Run runs the probes until ctx ends, and sends the key of each pod that has a new result to out.
// It returns when all probes have stopped.
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

// The kinds of probes, as messages name them.
const (
	startup   = "startup"
	liveness  = "liveness"
	readiness = "readiness"
)

// probesOf returns the probes that c has, by kind.
func probesOf(c *v1.Container) map[string]*v1.Probe {
	all := map[string]*v1.Probe{startup: c.StartupProbe, liveness: c.LivenessProbe, readiness: c.ReadinessProbe}
	maps.DeleteFunc(all, func(_ string, spec *v1.Probe) bool { return spec == nil })
	return all
}

// newTransport opens a new connection for each request, like a client that connects for the first
// time, and accepts any certificate: a probe checks whether a server answers, not its identity.
func newTransport() *http.Transport {
	return &http.Transport{
		DisableKeepAlives: true, DisableCompression: true, Proxy: nil, MaxResponseHeaderBytes: mostHeader,
		TLSClientConfig: anyCertificate(), DialContext: dialer().DialContext,
	}
}
