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

// desk provides the state of a running serve to the HTTP server and the metrics.
type desk struct {
	o       *Options
	files   *status.Files
	metrics *metrics.Metrics
	server  *server.Server // nil: no HTTP
	keeper  *gc.Keeper     // nil with Options.backend
	disks   *stats.Disks   // nil with Options.backend

	mu      sync.Mutex
	desired manifest.Desired
}

// newDesk opens the listening sockets, so that an address that is not available is an early error,
// and creates the metrics, which observe the relister from then on.
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

// close closes the listening sockets.
func (d *desk) close() {
	if d.server != nil {
		d.server.Close()
	}
}

// want stores the current desired set.
func (d *desk) want(now manifest.Desired) {
	if d.keeper != nil {
		d.keeper.Want(d.o.neededImages(now))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.desired = now
}

// run serves HTTP until ctx ends.
func (d *desk) run(ctx context.Context, r *relist.Relister) error {
	n := node{desk: d, Relister: r, summary: d.o.summary(d.disks)}
	d.metrics.Watch(n)
	address := ""
	if a := d.server.Address(); a != nil {
		address = a.String()
	}
	d.o.Log.Info("serving HTTP", "socket", d.o.Dirs.Socket(), "listen", address)
	return d.server.Run(ctx, server.NewHandler(server.Options{
		Node:     n,
		Metrics:  d.metrics.Handler(),
		Resource: metrics.Resource(func() (*kubelet.Summary, error) { return n.Summary(ctx, false) }, d.o.Log),
		Events:   n.Events,
		Log:      d.o.Log,
	}))
}

// node implements server.Node and metrics.Node.
type node struct {
	desk *desk
	*relist.Relister
	summary *stats.Stats
}

// Desired returns the current desired set.
func (n node) Desired() manifest.Desired {
	n.desk.mu.Lock()
	defer n.desk.mu.Unlock()
	return n.desk.desired
}

// Pods returns the pods with their last written statuses.
func (n node) Pods() ([]v1.Pod, error) { return n.desk.files.Pods() }

// Events returns the stored events, oldest first.
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

// summary returns the reader of resource usage. Without readable cgroups the usage of containers is
// left out.
func (o Options) summary(disks *stats.Disks) *stats.Stats {
	taken := func(string) (cgroup.Usage, error) { return cgroup.Usage{}, cgroup.ErrNoUsage }
	processes := func(string) ([]int, error) { return nil, cgroup.ErrNoUsage }
	if tree, err := cgroup.Open(); err == nil {
		taken, processes = tree.Usage, tree.Processes
	}
	return stats.New(stats.Options{
		Node:      o.NodeName,
		Usage:     taken,
		Machine:   sys.ReadUsage,
		Processes: processes,
		Links:     sys.Links,
		Disks:     disks,
	})
}

// disks returns the reader of disk usage. The image file system is the one that containerd reports,
// or else the root directory's.
func (h *house) disks() *stats.Disks {
	r, dirs := h.conn.Driver, h.o.Dirs
	meter := disk.New(dirs, r)
	return &stats.Disks{
		Usage:  meter.Usage,
		Dir:    meter.VolumeDir,
		Images: r.ImagesSize,
		FS:     sys.ReadFS,
		Data:   dirs.Root,
		Logs:   dirs.Log,
		Root:   cmp.Or(r.ImageRoot(), dirs.Root),
	}
}

// Health implements server.Node: the relister works, and containerd is reachable.
func (n node) Health() []server.Check {
	var away error
	if err := n.Failing(); errors.Is(err, runtime.ErrUnavailable) {
		away = err
	}
	return []server.Check{{Name: "relist", Err: n.Healthy()}, {Name: "containerd", Err: away}}
}

// Ready implements server.Node: all sources have been read, all manifests can be used, and the pods
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
		{Name: "disk", Err: n.pressure()},
	}
}

// pressure returns which disks have too little free space.
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

// problems joins the problems into one error, independent of the order of the sources.
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
