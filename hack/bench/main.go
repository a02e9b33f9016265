// Command bench measures podrun against a baseline, the containerd client alone ("floor"). Both use
// the same containerd in alternation. It prints a table of medians and ratios. A process counts as
// running when it has created a file itself (marks.go). It is a benchmark, not a test: it does not
// fail when a bound is exceeded.
//
// Begin reading with run, then measure.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/test/testcontainerd"
	"podrun.io/podrun/internal/test/testimage"
)

const imageRef = "podrun.example/bench:1"

// options are the command's flags.
type options struct {
	kind, podrun, markdown   string
	rounds, manyRounds, pods int
	idle                     time.Duration
	relist, pulls, network   bool
	idlePods, jobs, probes   bool
	plugins                  bool
	rows                     string
}

func main() {
	var o options
	flag.StringVar(&o.kind, "containerd", testcontainerd.Stock, "`kind` of containerd: stock or debian")
	flag.StringVar(&o.podrun, "podrun", "bin/podrun", "podrun `binary`")
	flag.StringVar(&o.markdown, "markdown", "", "`file` to write the table to")
	flag.IntVar(&o.rounds, "rounds", 15, "`number` of rounds with a single pod")
	flag.IntVar(&o.manyRounds, "many-rounds", 5, "`number` of rounds with many pods at once")
	flag.IntVar(&o.pods, "pods", 50, "`number` of pods in the rounds of many pods")
	flag.DurationVar(&o.idle, "idle", 30*time.Second, "how long to measure podrun with idle pods")
	flag.BoolVar(&o.relist, "relist", false, "measure only full lists, against the bare calls to containerd")
	flag.BoolVar(&o.idlePods, "idle-pods", false, "measure only all processes with idle pods, against a stock containerd")
	flag.BoolVar(&o.network, "network", false, "measure only how podrun's own bridge connects pods")
	flag.BoolVar(&o.pulls, "pulls", false, "measure only image pulls, against those of ctr")
	flag.BoolVar(&o.jobs, "jobs", false, "measure only jobs that end and the removal of pods")
	flag.BoolVar(&o.plugins, "plugins", false, "run podrun with --plugins")
	flag.StringVar(&o.rows, "rows", "", "write the rows in this `file` as the page's section on scale, and end")
	flag.BoolVar(&o.probes, "probes", false, "the rows are those of the section on probes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run sets up the environment, measures, prints and cleans up.
func run(ctx context.Context, o options) (err error) {
	if o.rows != "" {
		return writeRows(o)
	}
	dir, err := os.MkdirTemp("", "pb")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for _, volatile := range []string{"run", "state"} {
		undo, err := mountTmpfs(filepath.Join(dir, volatile))
		if err != nil {
			return err
		}
		defer undo()
	}
	if o.network {
		times, err := measureNetwork(ctx, dir, o.pods)
		if err == nil {
			fmt.Println(results{network: times}.networkRow())
		}
		return err
	}
	bin, err := testcontainerd.Bin(ctx, o.kind)
	if err != nil {
		return err
	}
	// Both sides use the shim that belongs to this containerd.
	server, err := testcontainerd.Start(ctx, bin, dir)
	if err != nil {
		return err
	}
	defer removeCgroups()
	defer func() { err = errors.Join(err, server.Stop()) }()
	client, err := containerd.New(server.Address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	archive, err := testimage.Busybox(dir, imageRef)
	if err != nil {
		return err
	}
	markDir := filepath.Join(dir, "marks")
	if err := os.Mkdir(markDir, 0o777); err != nil {
		return err
	}
	on := site{client: client, address: server.Address, bin: bin, archive: archive, dir: dir, plugins: o.plugins}
	m, err := newMarks(markDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	switch {
	case o.relist:
		return measureRelist(ctx, o, on, m)
	case o.idlePods:
		return measureIdle(ctx, o, on, m)
	case o.jobs:
		return measureJobs(ctx, o, on, m)
	}
	pulls, err := measurePulls(ctx, o, on)
	if err != nil || o.pulls {
		var row bytes.Buffer
		pulls.row(&row, pullRow, wantedPull)
		fmt.Print(row.String())
		return err
	}
	r, err := measure(ctx, o, on, m)
	if err != nil {
		return err
	}
	r.pull = pulls
	return r.print(ctx, o, client)
}

// mountTmpfs mounts a tmpfs at path. Both sides need one, as /run is on a machine: podrun's run
// directory and containerd's state directory.
func mountTmpfs(path string) (undo func(), err error) {
	if err := os.Mkdir(path, 0o755); err != nil {
		return nil, err
	}
	if err := unix.Mount("tmpfs", path, "tmpfs", 0, "mode=0755"); err != nil {
		return nil, fmt.Errorf("mounting a tmpfs at %s: %w", path, err)
	}
	return func() { _ = unix.Unmount(path, unix.MNT_DETACH) }, nil
}
