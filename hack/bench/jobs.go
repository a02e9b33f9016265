package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"

	"podrun.io/podrun/internal/test/testcontainerd"
)

// The bounds of the jobs.
const (
	wantedJob  = 1.4
	wantedDown = 1.2
	wantedTen  = 1.15
	// grace is the grace period of the pods that down removes: their processes ignore SIGTERM.
	grace = time.Second
)

// jobs has the times of what begins and ends with a command.
type jobs struct{ warm, cold, ten, down pair }

// measureJobs measures commands that end by themselves.
func measureJobs(ctx context.Context, o options, on site, m *marks) error {
	var j jobs
	f, err := newFloor(ctx, on.client, on.archive, on.dir, m)
	if err != nil {
		return err
	}
	if err := j.once(ctx, o, on, f); err != nil {
		return err
	}
	if err := j.coldRounds(ctx, o, on, f); err != nil {
		return err
	}
	if err := j.many(ctx, o, on, f, m); err != nil {
		return err
	}
	var table bytes.Buffer
	fmt.Fprintln(&table, "| job | containerd alone, ms | podrun, ms | ratio | wanted |")
	fmt.Fprintln(&table, "| --- | --- | --- | --- | --- |")
	j.warm.row(&table, "`once --rm` of `true`, containerd running", wantedJob)
	j.cold.row(&table, "the same, nothing running", wantedJob)
	j.ten.row(&table, "10 pods dropped → last running", wantedTen)
	j.down.row(&table, fmt.Sprintf("%d pods, `down --all`, a grace period of 1 s", o.pods), wantedDown)
	fmt.Print(table.String())
	if o.markdown == "" {
		return nil
	}
	version, err := on.client.Version(ctx)
	if err != nil {
		return fmt.Errorf("reading containerd's version: %w", err)
	}
	return writeSection(o.markdown, jobsHeading, fmt.Sprintf(jobsSection, table.String(), machine(version.Version)))
}

const jobManifest = `apiVersion: v1
kind: Pod
metadata: {name: job}
spec:
  os: {name: linux}
  restartPolicy: Never
  containers: [{name: c, image: ` + imageRef + `, command: ["true"]}]
`

// once measures podrun once against a container that the client creates, waits for and removes.
func (j *jobs) once(ctx context.Context, o options, on site, f *floor) error {
	file, flags, err := onceFiles(on, "warm", on.address)
	if err != nil {
		return err
	}
	if err := podrunCommand(ctx, o.podrun, append([]string{"images", "load", on.archive}, flags...)...); err != nil {
		return err
	}
	for i := range o.rounds + 1 {
		begin := time.Now()
		if err := f.job(ctx, "job"+strconv.Itoa(i)); err != nil {
			return err
		}
		floor := time.Since(begin)
		if err := settle(ctx); err != nil {
			return err
		}
		begin = time.Now()
		if err := podrunCommand(ctx, o.podrun, append([]string{"once", "--rm", file}, flags...)...); err != nil {
			return err
		}
		took := time.Since(begin)
		if err := settle(ctx); err != nil {
			return err
		}
		if i > 0 { // the first round is a warm-up
			j.warm.floor, j.warm.podrun = append(j.warm.floor, floor), append(j.warm.podrun, took)
		}
	}
	return nil
}

// onceFiles returns a job's manifest, and the flags of podrun with directories of its own.
func onceFiles(on site, name, address string) (file string, flags []string, err error) {
	dir := filepath.Join(on.dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", nil, err
	}
	file = filepath.Join(dir, "job.yaml")
	return file, []string{
		"--containerd-address", address, "--root-dir", filepath.Join(dir, "podrun"),
		"--run-dir", filepath.Join(on.dir, "run", name), "--log-dir", filepath.Join(dir, "log"),
		"--log-links-dir", filepath.Join(dir, "containers"),
	}, os.WriteFile(file, []byte(jobManifest), 0o644)
}

func podrunCommand(ctx context.Context, binary string, args ...string) error {
	out, err := exec.CommandContext(ctx, binary, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("podrun %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// coldRounds measures the same where no containerd runs: podrun starts its own, and the floor a stock one.
func (j *jobs) coldRounds(ctx context.Context, o options, on site, f *floor) error {
	file, flags, err := onceFiles(on, "cold", "embedded")
	if err != nil {
		return err
	}
	if err := podrunCommand(ctx, o.podrun, append([]string{"images", "load", on.archive}, flags...)...); err != nil {
		return err
	}
	for i := range o.rounds + 1 {
		floor, err := coldFloor(ctx, on, f, i)
		if err != nil {
			return err
		}
		if err := endEmbedded(ctx, filepath.Join(on.dir, "run", "cold")); err != nil {
			return err
		}
		begin := time.Now()
		if err := podrunCommand(ctx, o.podrun, append([]string{"once", "--rm", file}, flags...)...); err != nil {
			return err
		}
		if took := time.Since(begin); i > 0 {
			j.cold.floor, j.cold.podrun = append(j.cold.floor, floor), append(j.cold.podrun, took)
		}
	}
	return endEmbedded(ctx, filepath.Join(on.dir, "run", "cold"))
}

// coldFloor starts a containerd that has the image already, and runs the job.
func coldFloor(ctx context.Context, on site, f *floor, round int) (took time.Duration, err error) {
	dir := filepath.Join(on.dir, "c")
	if round == 0 {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return 0, err
		}
	}
	begin := time.Now()
	server, err := testcontainerd.Start(ctx, on.bin, dir)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	client, err := containerd.New(server.Address)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	if round == 0 { // the warm-up
		_, err := newFloor(ctx, client, on.archive, on.dir, f.marks)
		return 0, err
	}
	image, err := client.GetImage(floorNamespace(ctx), imageRef)
	if err != nil {
		return 0, err
	}
	cold := &floor{client, image, filepath.Join(on.dir, "floor-runc"), f.marks}
	if err := cold.job(ctx, "cold"); err != nil {
		return 0, err
	}
	return time.Since(begin), nil
}

// endEmbedded ends podrun's own containerd of a run directory.
func endEmbedded(ctx context.Context, run string) error {
	text, err := os.ReadFile(filepath.Join(run, "containerd", "daemon.lock"))
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	for syscall.Kill(pid, syscall.SIGTERM) == nil {
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return settle(ctx)
}

// job runs a container that ends by itself, and removes it.
func (f *floor) job(ctx context.Context, id string) error {
	ctx = floorNamespace(ctx)
	c, err := f.client.NewContainer(ctx, id,
		containerd.WithNewSnapshot(id, f.image),
		containerd.WithRuntime(runtimeName, &runcoptions.Options{Root: f.runc}),
		containerd.WithNewSpec(oci.WithImageConfig(f.image), oci.WithProcessArgs("true")))
	if err != nil {
		return fmt.Errorf("creating %s: %w", id, err)
	}
	task, err := c.NewTask(ctx, cio.NullIO)
	if err != nil {
		return fmt.Errorf("creating task %s: %w", id, err)
	}
	exited, err := task.Wait(ctx)
	if err != nil {
		return err
	}
	if err := task.Start(ctx); err != nil {
		return fmt.Errorf("starting %s: %w", id, err)
	}
	if s := <-exited; s.ExitCode() != 0 || s.Error() != nil {
		return fmt.Errorf("%s ended with %d: %w", id, s.ExitCode(), s.Error())
	}
	if _, err := task.Delete(ctx); err != nil {
		return fmt.Errorf("removing task %s: %w", id, err)
	}
	return c.Delete(ctx, containerd.WithSnapshotCleanup)
}

// many measures ten pods at once, and the removal of all.
func (j *jobs) many(ctx context.Context, o options, on site, f *floor, m *marks) (err error) {
	n, err := newNode(ctx, o.podrun, on, m)
	if err != nil {
		return err
	}
	closed := false
	defer func() {
		if !closed {
			err = errors.Join(err, n.Close(context.WithoutCancel(ctx)))
		}
	}()
	for i := range o.rounds + 1 {
		floor, err := round(ctx, side{remove: f.remove}, func(ctx context.Context, p string) (time.Duration, error) {
			return f.many(ctx, p, 10, floorWorkers)
		}, fmt.Sprintf("ften%d", i))
		if err != nil {
			return err
		}
		took, err := round(ctx, side{remove: n.remove}, func(ctx context.Context, p string) (time.Duration, error) {
			return n.many(ctx, p, 10)
		}, fmt.Sprintf("pten%d", i))
		if err != nil {
			return err
		}
		if i > 0 {
			j.ten.floor, j.ten.podrun = append(j.ten.floor, floor), append(j.ten.podrun, took)
		}
	}
	closed = true
	if err := n.Close(ctx); err != nil {
		return err
	}
	for i := range o.manyRounds {
		if err := j.downOnce(ctx, o, on, f, m, i); err != nil {
			return err
		}
	}
	return nil
}

// downOnce measures one removal of many pods. The floor's is that of killed containers, to which the
// grace period is added.
func (j *jobs) downOnce(ctx context.Context, o options, on site, f *floor, m *marks, i int) error {
	name := fmt.Sprintf("fdown%d", i)
	if _, err := f.many(ctx, name, o.pods, floorWorkers); err != nil {
		return err
	}
	if err := settle(ctx); err != nil {
		return err
	}
	begin := time.Now()
	if err := f.remove(ctx, name); err != nil {
		return err
	}
	floor := grace + time.Since(begin)

	on.dir = filepath.Join(on.dir, name)
	if err := os.Mkdir(on.dir, 0o755); err != nil {
		return err
	}
	n, err := newNode(ctx, o.podrun, on, m)
	if err != nil {
		return err
	}
	n.deaf = true
	if _, err := n.many(ctx, fmt.Sprintf("pdown%d", i), o.pods); err != nil {
		return errors.Join(err, n.Close(context.WithoutCancel(ctx)))
	}
	if err := settle(ctx); err != nil {
		return err
	}
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-n.done
	begin = time.Now()
	if err := n.podrun(ctx, "down", "--all", "--grace-period", strconv.Itoa(int(grace.Seconds()))); err != nil {
		return err
	}
	j.down.floor, j.down.podrun = append(j.down.floor, floor), append(j.down.podrun, time.Since(begin))
	return m.clear("pdown")
}

const jobsHeading = "\n\n## Jobs and removal\n"

const jobsSection = `
Commands that end by themselves, from their start to their end, against the containerd client alone, in turns on the same
stock containerd. The client creates the container of the job with its snapshot and shim, waits for it and removes all
of that. Where nothing runs, podrun starts its own containerd, and the floor is a stock one with the image, from its start
until the job is removed. The removed pods ignore SIGTERM, so that each takes its grace period of one second; the client's
containers are killed, four at a time, and a second is added.

%s
Taken on: %s.
`
