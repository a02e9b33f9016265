package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sync/errgroup"
)

const runtimeName = "io.containerd.runc.v2"

// floor is the baseline: it creates containers with the containerd client alone, each with a
// snapshot, a spec, and a task with its own shim.
type floor struct {
	client *containerd.Client
	image  containerd.Image
	runc   string // runc's state directory
	marks  *marks
}

// newFloor loads the image into the floor's own namespace.
func newFloor(ctx context.Context, client *containerd.Client, archive, dir string, m *marks) (*floor, error) {
	f, err := os.Open(archive)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	ctx = floorNamespace(ctx)
	imported, err := client.Import(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("importing %s: %w", archive, err)
	}
	image := containerd.NewImage(client, imported[0])
	if err := image.Unpack(ctx, ""); err != nil {
		return nil, fmt.Errorf("unpacking %s: %w", archive, err)
	}
	return &floor{client, image, filepath.Join(dir, "floor-runc"), m}, nil
}

func floorNamespace(ctx context.Context) context.Context {
	return namespaces.WithNamespace(ctx, "floor")
}

// create creates a container with a new snapshot and starts it.
func (f *floor) create(ctx context.Context, id, prefix string) error {
	ctx = floorNamespace(ctx)
	_, task, err := f.task(ctx, id, oci.WithProcessArgs(command(prefix)...), oci.WithMounts([]specs.Mount{{
		Destination: markMount,
		Type:        "bind",
		Source:      f.marks.dir,
		Options:     []string{"rbind", "rw"},
	}}))
	if err != nil {
		return err
	}
	if err := task.Start(ctx); err != nil {
		return fmt.Errorf("starting %s: %w", id, err)
	}
	return nil
}

// task creates a container with a new snapshot, and its task, which has not been started.
func (f *floor) task(
	ctx context.Context, id string, spec ...oci.SpecOpts,
) (containerd.Container, containerd.Task, error) {
	c, err := f.client.NewContainer(ctx, id,
		containerd.WithNewSnapshot(id, f.image),
		containerd.WithRuntime(runtimeName, &runcoptions.Options{Root: f.runc}),
		containerd.WithNewSpec(append([]oci.SpecOpts{oci.WithImageConfig(f.image)}, spec...)...))
	if err != nil {
		return nil, nil, fmt.Errorf("creating %s: %w", id, err)
	}
	task, err := c.NewTask(ctx, cio.NullIO)
	if err != nil {
		return nil, nil, fmt.Errorf("creating task %s: %w", id, err)
	}
	return c, task, nil
}

// many starts n containers with the given number of workers and returns how long it took until the
// last one ran.
func (f *floor) many(ctx context.Context, prefix string, n, workers int) (time.Duration, error) {
	begin := time.Now()
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for i := range n {
		id := prefix + "-" + strconv.Itoa(i)
		group.Go(func() error { return f.create(gctx, id, id) })
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	last, err := f.marks.wait(ctx, prefix, n)
	return last.Sub(begin), err
}

// restart starts a container, kills its process, and returns how long it takes until a replacement
// runs. As in podrun, the replacement has a new snapshot, and the dead container is removed
// afterwards.
func (f *floor) restart(ctx context.Context, prefix string) (time.Duration, error) {
	_, dead, running, err := f.replace(ctx, prefix)
	return running.Sub(dead), err
}

// update is restart, but measures from the signal to the old container.
func (f *floor) update(ctx context.Context, prefix string) (time.Duration, error) {
	killed, _, running, err := f.replace(ctx, prefix)
	return running.Sub(killed), err
}

func (f *floor) replace(ctx context.Context, prefix string) (killed, dead, running time.Time, err error) {
	if _, err := f.many(ctx, prefix, 1, 1); err != nil {
		return killed, dead, running, err
	}
	nctx := floorNamespace(ctx)
	c, err := f.client.LoadContainer(nctx, prefix+"-0")
	if err != nil {
		return killed, dead, running, err
	}
	task, err := c.Task(nctx, nil)
	if err != nil {
		return killed, dead, running, err
	}
	exited, err := task.Wait(nctx)
	if err != nil {
		return killed, dead, running, err
	}
	killed = time.Now()
	if err := task.Kill(nctx, syscall.SIGKILL); err != nil {
		return killed, dead, running, err
	}
	<-exited
	dead = time.Now()
	if err := f.create(ctx, prefix+"-1", prefix); err != nil {
		return killed, dead, running, err
	}
	running, err = f.marks.wait(ctx, prefix, 1)
	return killed, dead, running, err
}

// remove removes every container of the floor, and the marks with the prefix.
func (f *floor) remove(ctx context.Context, prefix string) error {
	ctx = floorNamespace(ctx)
	containers, err := f.client.Containers(ctx)
	if err != nil {
		return err
	}
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for _, c := range containers {
		group.Go(func() error {
			task, err := c.Task(gctx, nil)
			if err == nil {
				_, err = task.Delete(gctx, containerd.WithProcessKill)
			}
			if err != nil && !errdefs.IsNotFound(err) {
				return fmt.Errorf("removing task %s: %w", c.ID(), err)
			}
			return c.Delete(gctx, containerd.WithSnapshotCleanup)
		})
	}
	return errors.Join(group.Wait(), f.marks.clear(prefix))
}

// removeCgroups removes the empty parent cgroups that runc leaves of the floor's containers.
func removeCgroups() {
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/floor")
	for _, group := range append(groups, "/sys/fs/cgroup/floor") {
		_ = os.Remove(group)
	}
}
