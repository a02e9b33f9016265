package cmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/logs"
	"podrun.io/podrun/internal/pod"
)

type logsFlags struct {
	namespace, container         string
	follow, previous, timestamps bool
	tail                         int
	since                        time.Duration
}

func (a *app) logsCommand() *cobra.Command {
	var f logsFlags
	c := &cobra.Command{
		Use:   "logs POD [-c CONTAINER]",
		Short: "Print a container's log",
		Long: "logs prints what a container wrote, its standard error to standard error. It works while serve is\n" +
			"down. With -f it ends when the container does.",
		Example: "  podrun logs web\n  podrun logs -f --tail 20 web -c app\n  podrun logs --previous web",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE:    func(c *cobra.Command, args []string) error { return a.logs(c, f, args[0]) },
	}
	flags := c.Flags()
	flags.StringVarP(&f.namespace, "namespace", "n", "default", "the pod's namespace")
	flags.StringVarP(&f.container, "container", "c", "", "the container (default: the pod's first)")
	flags.BoolVarP(&f.follow, "follow", "f", false, "go on printing what comes")
	flags.BoolVarP(&f.previous, "previous", "p", false, "the log of the run before the last restart")
	flags.BoolVar(&f.timestamps, "timestamps", false, "put the time before each line")
	flags.IntVar(&f.tail, "tail", -1, "print that many of the last lines; -1: all")
	flags.DurationVar(&f.since, "since", 0, "print lines newer than that, such as 5s, 2m or 3h")
	return c
}

func (a *app) logs(c *cobra.Command, f logsFlags, name string) error {
	switch {
	case f.tail < -1:
		return usage(c, fmt.Errorf("--tail %d: must be -1 or more", f.tail))
	case f.since < 0:
		return usage(c, fmt.Errorf("--since %s: must not be negative", f.since))
	case f.follow && f.previous:
		return usage(c, errors.New("only one of --follow and --previous may be used: the previous run has ended"))
	}
	p, err := a.podNamed(f.namespace, name)
	if err != nil {
		return err
	}
	r, err := a.choose(p, f.container)
	if err != nil {
		return err
	}
	inst, err := instance(p, r, f.previous)
	if err != nil {
		return err
	}
	o := logs.ReadOptions{Follow: f.follow, Timestamps: f.timestamps}
	if f.tail >= 0 {
		o.Tail = &f.tail
	}
	if f.since > 0 {
		o.Since = time.Now().Add(-f.since)
	}
	return a.readLog(c.Context(), inst, o)
}

// readLog prints an instance's log, and converts what nobody has converted yet.
func (a *app) readLog(ctx context.Context, inst pod.Instance, o logs.ReadOptions) error {
	dirs := a.dirs()
	if err := logs.CatchUp(ctx, dirs, inst); err != nil {
		if ctx.Err() != nil {
			return err
		}
		fmt.Fprintf(a.errOut, "warning: the newest lines may be missing: %v\n", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	if o.Follow {
		stop := make(chan struct{})
		o.Stop = stop
		watching.Go(func() { keepUp(ctx, dirs, inst, stop) })
	}
	err := logs.Read(ctx, dirs.ContainerLog(inst.Key, inst.UID, inst.Container, inst.Attempt), o, a.out, a.errOut)
	if errors.Is(err, fs.ErrNotExist) {
		return &failure{code: exitFailed, err: fmt.Errorf("container %q in pod %q has no log of run %d any more",
			inst.Container, inst.Key.Name, inst.Attempt)}
	}
	return err
}

// keepUpEvery is how often a followed log is converted should nobody else do it.
const keepUpEvery = 250 * time.Millisecond

// keepUp closes stop when the instance has ended and all that it wrote is in its log.
func keepUp(ctx context.Context, dirs layout.Dirs, inst pod.Instance, stop chan<- struct{}) {
	ticker := time.NewTicker(keepUpEvery)
	defer ticker.Stop()
	for {
		// Asked first: what an ended instance wrote is then all there.
		ended := logs.Ended(dirs, inst)
		// A failure, such as a full disk, is tried again; the log's owner says it.
		if err := logs.CatchUp(ctx, dirs, inst); err == nil && ended {
			close(stop)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
