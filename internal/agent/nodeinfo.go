package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	kubelet "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/event"
	"podrun.io/podrun/internal/gc"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/relist"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/server"
	"podrun.io/podrun/internal/server/metrics"
	"podrun.io/podrun/internal/stats"
	"podrun.io/podrun/internal/stats/disk"
	"podrun.io/podrun/internal/status"
	"podrun.io/podrun/internal/sys"
)

// desk is where a running serve is asked how it is: over HTTP, and by those who scrape its metrics.
type desk struct {
	o       *Options
	files   *status.Files
	metrics *metrics.Metrics
	server  *server.Server // nil: nobody is answered
	keeper  *gc.Keeper     // nil where the runtime was given
	disks   *stats.Disks   // likewise

	mu      sync.Mutex
	desired manifest.Desired
}

// newDesk takes the addresses, so that it is known early when they cannot be had, and makes the metrics,
// which watch listing from then on.
func newDesk(o *Options) (*desk, error) {
	d := &desk{o: o, files: status.NewFiles(o.Dirs), metrics: metrics.New(o.Log)}
	o.observer = d.metrics
	if o.machine != nil {
		return d, nil
	}
	listening, err := server.Listen(o.Dirs.Socket(), o.Listen, o.Log)
	if errors.Is(err, server.ErrAddress) {
		return nil, fmt.Errorf("%w: --listen: %w", ErrUsage, err)
	}
	if err != nil {
		return nil, err
	}
	d.server = listening
	return d, nil
}

// close gives up the addresses.
func (d *desk) close() {
	if d.server != nil {
		d.server.Close()
	}
}

// want takes note of what the sources want.
func (d *desk) want(now manifest.Desired) {
	if d.keeper != nil {
		d.keeper.Want(d.o.neededImages(now))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.desired = now
}

// run answers until ctx ends.
func (d *desk) run(ctx context.Context, r *relist.Relister) error {
	n := node{desk: d, Relister: r, summary: d.o.summary(d.disks)}
	d.metrics.Watch(n)
	address := ""
	if a := d.server.Address(); a != nil {
		address = a.String()
	}
	d.o.Log.Info("answering HTTP", "socket", d.o.Dirs.Socket(), "listen", address)
	return d.server.Run(ctx, server.NewHandler(server.Options{
		Node: n, Metrics: d.metrics.Handler(), Resource: metrics.Resource(func() (*kubelet.Summary, error) { return n.Summary(ctx, false) }, d.o.Log), Events: n.Events, Log: d.o.Log,
	}))
}

// node is what the desk tells of.
type node struct {
	desk *desk
	*relist.Relister
	summary *stats.Stats
}

// Desired is what the sources said last.
func (n node) Desired() manifest.Desired {
	n.desk.mu.Lock()
	defer n.desk.mu.Unlock()
	return n.desk.desired
}

// Pods are the pods with the statuses that were written last.
func (n node) Pods() ([]v1.Pod, error) { return n.desk.files.Pods() }

// Events are what is kept of what happened to pods, the newest last.
func (n node) Events() ([]v1.Event, error) {
	records, err := event.Read(n.desk.o.Dirs)
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

// summary makes what reads what is taken. Where there are no cgroups to be read, containers are left out.
func (o Options) summary(disks *stats.Disks) *stats.Stats {
	taken := func(string) (cgroup.Usage, error) { return cgroup.Usage{}, cgroup.ErrNoUsage }
	processes := func(string) ([]int, error) { return nil, cgroup.ErrNoUsage }
	if tree, err := cgroup.Open(); err == nil {
		taken, processes = tree.Usage, tree.Processes
	}
	return stats.New(stats.Options{Node: o.NodeName, Usage: taken, Machine: sys.ReadUsage, Processes: processes, Links: sys.Links, Disks: disks})
}

// disks are what is told of disks, as far as containerd says where it has images.
func (h *house) disks() *stats.Disks {
	r, dirs := h.conn.Driver, h.o.Dirs
	meter := disk.New(dirs, r)
	return &stats.Disks{Usage: meter.Usage, Dir: meter.VolumeDir, Images: r.ImagesSize, FS: sys.ReadFS,
		Data: dirs.Root, Logs: dirs.Log, Root: cmp.Or(r.ImageRoot(), dirs.Root)}
}

// Health implements server.Node: podrun does its work, and reaches containerd.
func (n node) Health() []server.Check {
	var away error
	if err := n.Failing(); errors.Is(err, runtime.ErrUnavailable) {
		away = err
	}
	return []server.Check{{Name: "relist", Err: n.Healthy()}, {Name: "containerd", Err: away}}
}

// Ready implements server.Node: all sources have spoken, all that they said can be used, and what is there
// is known.
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
		{Name: "disk", Err: n.pressure()},
	}
}

// pressure says which disks have too little space.
func (n node) pressure() error {
	if n.desk.keeper == nil {
		return nil
	}
	return n.desk.keeper.Pressure()
}

// Disks implements metrics.Node.
func (n node) Disks() []gc.Usage {
	if n.desk.keeper == nil {
		return nil
	}
	return n.desk.keeper.Disks()
}

// ImagesRemoved implements metrics.Node.
func (n node) ImagesRemoved() map[string]int {
	if n.desk.keeper == nil {
		return nil
	}
	return n.desk.keeper.Removed()
}

// problems words all problems as one, whatever order the sources are in.
func problems(all []manifest.Problem) error {
	var texts []string
	for _, p := range all {
		texts = append(texts, p.Err.Error())
	}
	if len(texts) == 0 {
		return nil
	}
	slices.Sort(texts)
	return errors.New(strings.Join(slices.Compact(texts), "\n"))
}
