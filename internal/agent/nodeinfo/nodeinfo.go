// Package nodeinfo shows the state of a running serve to others, over HTTP and as metrics: its pods
// with their statuses, logs, events, what they use, and whether serve is healthy and ready. It
// implements server.Node and metrics.Node, the data of packages server and server/metrics.
//
// The package changes nothing, and no decision depends on it.
//
// Begin reading at Server.
package nodeinfo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	kubelet "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/event"
	"podrun.io/podrun/internal/gc"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/relist"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/server"
	"podrun.io/podrun/internal/server/metrics"
	"podrun.io/podrun/internal/stats"
	"podrun.io/podrun/internal/status"
	"podrun.io/podrun/internal/status/plugins"
)

// Options are what a Server is made of.
type Options struct {
	Dirs layout.Dirs
	// NodeName is the name of this machine.
	NodeName string
	// Files have the statuses of the pods.
	Files *status.Files
	Log   *slog.Logger
}

// Server shows the state of a running serve.
type Server struct {
	// Timeline has what pods spent their time on. It is shown, and filled by others.
	Timeline *server.Timeline

	o       Options
	metrics *metrics.Metrics
	probes  *metrics.Probes
	http    *server.Server // nil: it does not listen
	history bool           // server.ListenOptions.History

	mu      sync.Mutex
	desired manifest.Desired
	events  *event.Reader
	sources []server.Source // in the order in which they were first read
}

// New creates a server that does not listen yet.
func New(o Options) *Server {
	return &Server{
		Timeline: server.NewTimeline(), o: o, events: event.NewReader(o.Dirs),
		metrics: metrics.New(o.Log), probes: metrics.NewProbes(o.Log),
	}
}

// Observer returns the observer that the relister must be given, so that the metrics contain its
// measurements.
func (s *Server) Observer() relist.Observer { return s.metrics }

// Probes returns the observer that the prober must be given, for the same reason.
func (s *Server) Probes() *metrics.Probes { return s.probes }

// Listen opens the listening sockets. An address that is not available yet is no error.
func (s *Server) Listen(o server.ListenOptions) (err error) {
	s.history = o.History
	s.http, err = server.Listen(s.o.Dirs.Socket(), o, s.o.Log)
	return err
}

// Close closes the listening sockets.
func (s *Server) Close() {
	if s.http != nil {
		s.http.Close()
	}
}

// SetDesired stores the current desired set.
func (s *Server) SetDesired(now manifest.Desired) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.desired = now
}

// Parts are the parts of serve whose state is shown.
type Parts struct {
	Relister *relist.Relister
	// Keeper and Disks may be nil: then disks are left out.
	Keeper *gc.Keeper
	Disks  *stats.Disks
	// Containerd returns the version of containerd; nil: it is not known.
	Containerd func(context.Context) (string, error)
	// Network returns the path of the network namespace of a sandbox; "" means the host's. nil: they are not known.
	Network func(pod.Sandbox) string
	// Config is the response of /configz.
	Config any
}

// Run serves HTTP until ctx ends. Listen must have succeeded.
func (s *Server) Run(ctx context.Context, parts Parts) error {
	n := node{Server: s, Relister: parts.Relister, keeper: parts.Keeper, since: time.Now()}
	n.containerd = &version{ask: parts.Containerd}
	n.summary = stats.OfMachine(s.o.NodeName, parts.Disks, func(p *v1.Pod) string {
		for _, b := range n.Seen(pod.KeyOf(p)).Sandboxes {
			if b.UID == p.UID && b.Ready && parts.Network != nil {
				return parts.Network(b)
			}
		}
		return ""
	})
	s.metrics.Watch(n)
	ctx, cancel := context.WithCancel(ctx)
	before, wait := server.StartHistory(ctx, n, s.history)
	defer wait()
	defer cancel()
	address := ""
	if a := s.http.Address(); a != nil {
		address = a.String()
	}
	s.o.Log.Info("serving HTTP", "socket", s.o.Dirs.Socket(), "listen", address)
	return s.http.Run(ctx, server.NewHandler(server.Options{
		Node:       n,
		Metrics:    s.metrics.Handler(),
		Resource:   metrics.Resource(func() (*kubelet.Summary, error) { return n.Summary(ctx, false) }, s.o.Log),
		Containers: metrics.Containers(func() (stats.Groups, error) { return n.pressedGroups(ctx) }, s.o.Log),
		Probes:     s.probes.Handler(),
		Timeline:   s.Timeline,
		Config:     parts.Config,
		History:    before,
		Events:     n.Events,
		Log:        s.o.Log,
	}))
}

// node implements server.Node and metrics.Node.
type node struct {
	*Server
	*relist.Relister
	keeper     *gc.Keeper
	summary    *stats.Stats
	containerd *version
	since      time.Time
}

// Desired returns the current desired set.
func (n node) Desired() manifest.Desired {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.desired
}

// Pods returns the pods with their last written statuses.
func (n node) Pods() ([]v1.Pod, error) { return n.o.Files.Pods() }

// Events returns the stored events, oldest first.
func (n node) Events() ([]v1.Event, error) {
	records, err := n.events.Read()
	var out []v1.Event
	for _, r := range records {
		out = append(out, r.Event())
	}
	return out, err
}

// Summary implements server.Node.
func (n node) Summary(ctx context.Context, whole bool) (*kubelet.Summary, error) {
	pods, err := n.Pods()
	if err != nil {
		return nil, err
	}
	if whole {
		return n.summary.Whole(ctx, pods, time.Now())
	}
	return n.summary.Summary(pods, time.Now())
}

// groups returns what the cgroups of running pods use.
func (n node) groups(ctx context.Context) (stats.Groups, error) {
	pods, err := n.Pods()
	if err != nil {
		return stats.Groups{}, err
	}
	return n.summary.Groups(ctx, pods)
}

// pressedGroups is groups with the pressure on each.
func (n node) pressedGroups(ctx context.Context) (stats.Groups, error) {
	all, err := n.groups(ctx)
	n.summary.AddPressure(&all)
	return all, err
}

// Totals implements server.Node.
func (n node) Totals(ctx context.Context) []stats.Total {
	all, err := n.groups(ctx)
	if err != nil {
		n.o.Log.Debug("what pods have used is not known completely", "err", err)
	}
	return all.Totals()
}

// Running implements server.Node.
func (n node) Running() []v1.Pod {
	var out []v1.Pod
	for _, seen := range n.Relister.Running() {
		p := v1.Pod{}
		p.Namespace, p.Name, p.UID = seen.Key.Namespace, seen.Key.Name, seen.Containers[0].UID
		for _, c := range seen.Containers {
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: c.Name, Image: c.Image})
		}
		out = append(out, p)
	}
	return out
}

// Health implements server.Node: the relister works, and containerd is reachable.
func (n node) Health() []server.Check {
	var away error
	if err := n.Failing(); errors.Is(err, runtime.ErrUnavailable) {
		away = err
	}
	return []server.Check{{Name: "relist", Err: n.Healthy()}, {Name: "containerd", Err: away}}
}

// Ready implements server.Node: all sources have been read, all manifests can be used and run, and the pods
// on the machine are known.
func (n node) Ready() []server.Check {
	desired := n.Desired()
	var waiting error
	if !desired.Complete {
		waiting = errors.New("not every source of manifests has been read yet")
	}
	return []server.Check{
		{Name: "sources", Err: waiting},
		{Name: "relist", Err: n.Failing()},
		{Name: "manifests", Err: problems(desired.Problems)},
		{Name: "rollback", Err: rolledBack(desired)},
		{Name: "disk", Err: n.pressure()},
	}
}

// rolledBack returns which pods run a former revision of their manifest.
func rolledBack(d manifest.Desired) error {
	var names []string
	for _, key := range slices.SortedFunc(maps.Keys(d.Pods), pod.Key.Compare) {
		if d.Pods[key].Annotations[manifest.AnnotationRolledBack] != "" {
			names = append(names, key.String())
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("a former revision of the manifest runs in %s", strings.Join(names, ", "))
}

// Machine implements server.Node.
func (n node) Machine() server.Machine {
	m := server.Machine{Name: n.o.NodeName, Version: metrics.Version(), Processors: goruntime.NumCPU(), Since: n.since}
	m.Containerd, m.Kernel = n.containerd.now(), kernel()
	for _, d := range n.Disks() {
		m.Disks = append(m.Disks, server.Disk{
			Name: d.Name, Capacity: int64(d.Capacity), Free: int64(d.Available), Pressed: d.Pressed,
		})
	}
	n.mu.Lock()
	m.Sources = slices.Clone(n.sources)
	n.mu.Unlock()
	all, err := n.Plugins()
	if err != nil {
		n.o.Log.Debug("the page cannot show the plugins", "err", err)
	}
	for _, p := range all {
		m.Plugins = append(m.Plugins, server.Plugin{
			Name: p.Name, Type: p.Type, Connected: p.Status == plugins.Connected, Since: p.Since,
			Devices: len(p.Devices), Healthy: p.Healthy(), Used: p.Used(), Volumes: len(p.Volumes),
		})
	}
	return m
}

// Plugins implements metrics.Node.
func (n node) Plugins() ([]plugins.Plugin, error) { return plugins.List(n.o.Dirs) }

// ProbeResults implements server.Node.
func (n node) ProbeResults(uid pod.UID) (out []server.ProbeResult) {
	for of, last := range n.probes.Last(uid) {
		out = append(out, server.ProbeResult{
			Container: of.Container, Type: of.Type, Result: last.Result, Since: last.Since,
		})
	}
	return out
}

// Problems implements server.Node.
func (n node) Problems() []string { return texts(n.Desired().Problems) }

// pressure returns which disks have too little free space.
func (n node) pressure() error {
	if n.keeper == nil {
		return nil
	}
	return n.keeper.Pressure()
}

// Disks implements metrics.Node.
func (n node) Disks() []gc.Usage {
	if n.keeper == nil {
		return nil
	}
	return n.keeper.Disks()
}

// ImagesRemoved implements metrics.Node.
func (n node) ImagesRemoved() map[string]int {
	if n.keeper == nil {
		return nil
	}
	return n.keeper.Removed()
}

// problems joins the problems into one error, independent of the order of the sources.
func problems(all []manifest.Problem) error {
	if len(all) == 0 {
		return nil
	}
	return errors.New(strings.Join(texts(all), "\n"))
}

// texts returns the texts of the problems, each once, sorted.
func texts(all []manifest.Problem) (out []string) {
	for _, p := range all {
		out = append(out, p.Err.Error())
	}
	slices.Sort(out)
	return slices.Compact(out)
}
