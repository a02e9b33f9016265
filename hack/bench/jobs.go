package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/oci"

	"podrun.io/podrun/hack/bench/sections"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/embedded"
	"podrun.io/podrun/internal/test/testcontainerd"
)

// The bounds of the jobs.
const (
	wantedJob  = 1.4
	wantedDown = 1.2
	wantedTen  = 1.15
	// grace is the shortest grace period that Kubernetes gives a container. The removed pods' processes
	// ignore SIGTERM.
	grace = 2 * time.Second
)

// jobs measures commands that end by themselves.
type jobs struct {
	options
	site
	f     *floor
	marks *marks
	// The times of a job with the host's network, with a network of its own, and with a containerd that
	// is not running; of ten pods' start; of the removal of many.
	host, own, cold, ten, down pair
}

func measureJobs(ctx context.Context, o options, on site, m *marks) error {
	f, err := newFloor(ctx, on.client, on.archive, on.dir, m)
	if err != nil {
		return err
	}
	j := &jobs{options: o, site: on, f: f, marks: m}
	for _, measure := range []func(context.Context) error{j.once, j.fromNothing, j.tenPods, j.removal} {
		if err := measure(ctx); err != nil {
			return err
		}
	}
	var table bytes.Buffer
	fmt.Fprintln(&table, "| job | containerd alone, ms | podrun, ms | ratio | wanted |")
	fmt.Fprintln(&table, "| --- | --- | --- | --- | --- |")
	j.host.row(&table, "`once --rm` of `true`, containerd running, hostNetwork", wantedJob)
	j.own.row(&table, "the same with podrun's network, which is made for it and removed", wantedJob)
	j.cold.row(&table, "with hostNetwork, no containerd running", wantedJob)
	j.ten.row(&table, "10 pods dropped → last running", wantedTen)
	j.down.row(&table, fmt.Sprintf("%d pods, `down --all`, 2 s of grace", o.pods), wantedDown)
	return publish(ctx, o, on.client, table.String(), func(machine string) error {
		return sections.Write(o.markdown, sections.Jobs, fmt.Sprintf(jobsSection, table.String(), machine))
	})
}

const jobManifest = `apiVersion: v1
kind: Pod
metadata: {name: job}
spec:
  os: {name: linux}
  hostNetwork: %t
  restartPolicy: Never
  containers: [{name: c, image: ` + imageRef + `, command: ["true"]}]
`

// command runs podrun with directories of its own, which are named name, and returns how long it took.
func (j *jobs) command(ctx context.Context, name, address string, args ...string) (time.Duration, error) {
	begin := time.Now()
	err := podrun(ctx, j.podrun, append(args, flagsOf(j.dirs(name), address)...)...)
	return time.Since(begin), err
}

func (j *jobs) dirs(name string) layout.Dirs {
	return dirsOf(filepath.Join(j.dir, name), filepath.Join(j.dir, "run", name))
}

// prepare loads the image and returns a job's manifest.
func (j *jobs) prepare(ctx context.Context, name, address string, hostNetwork bool) (file string, err error) {
	if _, err := j.command(ctx, name, address, "images", "load", j.archive); err != nil {
		return "", err
	}
	file = filepath.Join(j.dir, name+".yaml")
	return file, os.WriteFile(file, fmt.Appendf(nil, jobManifest, hostNetwork), 0o644)
}

// alternate calls both sides in turns. The first round is a warm-up.
func (j *jobs) alternate(ctx context.Context, into *pair, floor, podrun func(i int) (time.Duration, error)) error {
	for i := range j.rounds + 1 {
		a, err := floor(i)
		if err != nil {
			return fmt.Errorf("floor: %w", err)
		}
		if err := settle(ctx); err != nil {
			return err
		}
		b, err := podrun(i)
		if err != nil {
			return err
		}
		if err := settle(ctx); err != nil {
			return err
		}
		if i > 0 {
			into.floor, into.podrun = append(into.floor, a), append(into.podrun, b)
		}
	}
	return nil
}

// once measures podrun once against a container that the client creates, waits for and removes.
func (j *jobs) once(ctx context.Context) error {
	for name, into := range map[string]*pair{"host": &j.host, "own": &j.own} {
		file, err := j.prepare(ctx, name, "embedded", name == "host")
		if err != nil {
			return err
		}
		err = j.alternate(ctx, into,
			func(i int) (time.Duration, error) { return j.f.job(ctx, name+strconv.Itoa(i)) },
			func(int) (time.Duration, error) { return j.command(ctx, name, "embedded", "once", "--rm", file) })
		if err != nil {
			return err
		}
	}
	return nil
}

// fromNothing measures the same where no containerd runs: podrun starts its own, and the floor a stock one.
func (j *jobs) fromNothing(ctx context.Context) error {
	file, err := j.prepare(ctx, "cold", "embedded", true)
	if err != nil {
		return err
	}
	return j.alternate(ctx, &j.cold,
		func(i int) (time.Duration, error) { return j.coldFloor(ctx, i) },
		func(int) (time.Duration, error) {
			if err := endEmbedded(ctx, j.dirs("cold")); err != nil {
				return 0, err
			}
			return j.command(ctx, "cold", "embedded", "once", "--rm", file)
		})
}

// coldFloor starts a containerd that has the image already, and runs the job. The first one loads it.
func (j *jobs) coldFloor(ctx context.Context, round int) (took time.Duration, err error) {
	dir := filepath.Join(j.dir, "c")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, err
	}
	begin := time.Now()
	server, err := testcontainerd.Start(ctx, j.bin, dir)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	client, err := containerd.New(server.Address)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	if round == 0 {
		_, err := newFloor(ctx, client, j.archive, j.dir, j.marks)
		return 0, err
	}
	image, err := client.GetImage(floorNamespace(ctx), imageRef)
	if err != nil {
		return 0, err
	}
	_, err = (&floor{client, image, j.f.runc, j.marks}).job(ctx, "cold")
	return time.Since(begin), err
}

// endEmbedded ends podrun's own containerd of the directories.
func endEmbedded(ctx context.Context, dirs layout.Dirs) error {
	for pid := embedded.PID(dirs); pid != 0; pid = embedded.PID(dirs) {
		_ = syscall.Kill(pid, syscall.SIGTERM) // it may have ended meanwhile
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return settle(ctx)
}

// job runs a container that ends by itself, and removes it. It returns how long that took.
func (f *floor) job(ctx context.Context, id string) (time.Duration, error) {
	ctx = floorNamespace(ctx)
	begin := time.Now()
	c, task, err := f.task(ctx, id, oci.WithProcessArgs("true"))
	if err != nil {
		return 0, err
	}
	exited, err := task.Wait(ctx)
	if err != nil {
		return 0, err
	}
	if err := task.Start(ctx); err != nil {
		return 0, fmt.Errorf("starting %s: %w", id, err)
	}
	<-exited
	if _, err := task.Delete(ctx); err != nil {
		return 0, fmt.Errorf("removing task %s: %w", id, err)
	}
	err = c.Delete(ctx, containerd.WithSnapshotCleanup)
	return time.Since(begin), err
}

// tenPods measures ten pods at once.
func (j *jobs) tenPods(ctx context.Context) (err error) {
	n, err := newNode(ctx, j.podrun, j.site, j.marks)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close(context.WithoutCancel(ctx))) }()
	return j.alternate(ctx, &j.ten,
		func(i int) (time.Duration, error) {
			return round(ctx, side{remove: j.f.remove}, func(ctx context.Context, p string) (time.Duration, error) {
				return j.f.many(ctx, p, 10, floorWorkers)
			}, fmt.Sprintf("ften%d", i))
		},
		func(i int) (time.Duration, error) {
			return round(ctx, side{remove: n.remove}, func(ctx context.Context, p string) (time.Duration, error) {
				return n.many(ctx, p, 10)
			}, fmt.Sprintf("pten%d", i))
		})
}

// removal measures the removal of many pods. The floor's is that of killed containers, to which the grace
// period is added.
func (j *jobs) removal(ctx context.Context) error {
	j.rounds = j.manyRounds
	return j.alternate(ctx, &j.down,
		func(i int) (time.Duration, error) {
			name := fmt.Sprintf("fdown%d", i)
			if _, err := j.f.many(ctx, name, j.pods, floorWorkers); err != nil {
				return 0, err
			}
			begin := time.Now()
			err := j.f.remove(ctx, name)
			return grace + time.Since(begin), err
		},
		func(i int) (took time.Duration, err error) {
			on, name := j.site, fmt.Sprintf("pdown%d", i)
			on.dir, on.address = filepath.Join(on.dir, name), "embedded"
			if err := os.Mkdir(on.dir, 0o755); err != nil {
				return 0, err
			}
			n, err := newNode(ctx, j.podrun, on, j.marks)
			if err != nil {
				return 0, err
			}
			n.deaf = true
			if _, err := n.many(ctx, name, j.pods); err != nil {
				return 0, errors.Join(err, n.Close(context.WithoutCancel(ctx)))
			}
			err = n.Close(ctx)
			return n.removed, errors.Join(err, j.marks.clear(name))
		})
}

//go:embed jobs.md
var jobsSection string
