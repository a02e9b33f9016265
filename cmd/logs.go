package cmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"podrun.io/podrun/internal/agent"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/cli/summary"
	"podrun.io/podrun/internal/containerlog"
	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
)

type logsFlags struct {
	namespace, container, selector string
	all                            bool
	follow, previous, timestamps   bool
	prefix                         bool
	tail                           int
	since                          time.Duration
	sinceTime                      string
}

func (a *app) logsCommand() *cobra.Command {
	var f logsFlags
	c := &cobra.Command{
		Use:   "logs POD [-c CONTAINER] | logs -l SELECTOR",
		Short: "Print the logs of containers",
		Long: "logs prints the log of a container, its standard error to standard error. It also works while\n" +
			"serve is down. With -f it follows the log across restarts as long as podrun runs the pod, and\n" +
			"exits when the container will not run again. Lines of several containers are prefixed with the pod\n" +
			"and the container.",
		Example: "  podrun logs web\n  podrun logs -f --tail 20 web -c app\n  podrun logs --previous web\n" +
			"  podrun logs -f web --all-containers\n  podrun logs -l app=web --tail 5",
		ValidArgsFunction: a.completePods,
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.check(c, args); err != nil {
				return usage(c, err)
			}
			if f.tail == -1 && f.selector != "" && !f.follow && !c.Flags().Changed("tail") {
				f.tail = 10 // the default of kubectl
			}
			return a.logs(c, f, args)
		},
	}
	flags := c.Flags()
	flags.StringVarP(&f.namespace, "namespace", "n", "default", "namespace of the pods")
	flags.StringVarP(&f.container, "container", "c", "",
		"container name (default: the pod's default container, else its first)")
	flags.StringVarP(&f.selector, "selector", "l", "",
		"label selector of the pods; prints the last 10 lines of each unless --tail is set")
	flags.BoolVar(&f.all, "all-containers", false, "print the logs of all containers of the pod")
	flags.BoolVarP(&f.follow, "follow", "f", false, "follow the log")
	flags.BoolVarP(&f.previous, "previous", "p", false, "print the log of the previous instance of the container")
	flags.BoolVar(&f.prefix, "prefix", false,
		"prefix each line with the pod and the container (default: if there are several logs)")
	flags.BoolVar(&f.timestamps, "timestamps", false, "prefix each line with its timestamp")
	flags.IntVar(&f.tail, "tail", -1, "number of most recent lines to print; -1: all")
	flags.StringVar(&f.sinceTime, "since-time", "",
		"print lines since a time in RFC 3339 format, such as 2026-01-02T15:04:05Z")
	flags.DurationVar(&f.since, "since", 0, "print lines newer than a duration, such as 5s, 2m or 3h")
	a.completeFlags(c)
	return c
}

func (f logsFlags) check(c *cobra.Command, args []string) error {
	if _, err := time.Parse(time.RFC3339, f.sinceTime); f.sinceTime != "" && err != nil {
		return fmt.Errorf("--since-time %q: must be a time such as 2026-01-02T15:04:05Z", f.sinceTime)
	}
	switch {
	case f.tail < -1:
		return fmt.Errorf("--tail %d: must be -1 or more", f.tail)
	case f.since < 0:
		return fmt.Errorf("--since %s: must not be negative", f.since)
	case f.since > 0 && f.sinceTime != "":
		return errors.New("only one of --since and --since-time may be used")
	case f.follow && f.previous:
		return errors.New("only one of --follow and --previous may be used: the previous instance has ended")
	case f.all && f.container != "":
		return errors.New("only one of --container and --all-containers may be used")
	case f.selector != "" && len(args) > 0:
		return errors.New("pods are selected by name or by --selector, not by both")
	case f.selector != "":
		if _, err := labels.Parse(f.selector); err != nil {
			return fmt.Errorf("--selector %q: %w", f.selector, err)
		}
		return nil
	}
	return argCount(1, 1)(c, args)
}

// logStream is the log of one container.
type logStream struct {
	role  summary.Role
	inst  pod.Instance
	label string
}

func (a *app) logs(c *cobra.Command, f logsFlags, args []string) error {
	pods, err := a.pods().Select(query.Selection{Namespace: f.namespace, Labels: f.selector}, args)
	if err != nil {
		return err
	}
	streams, err := a.logStreams(f, pods)
	if err != nil {
		return err
	}
	if !c.Flags().Changed("prefix") {
		f.prefix = len(streams) > 1
	}
	o := containerlog.ReadOptions{Follow: f.follow, Timestamps: f.timestamps}
	if f.tail >= 0 {
		o.Tail = &f.tail
	}
	if f.sinceTime != "" {
		o.Since, _ = time.Parse(time.RFC3339, f.sinceTime) // check has parsed it already
	}
	if f.since > 0 {
		o.Since = time.Now().Add(-f.since)
	}
	return a.printStreams(c.Context(), streams, o, f.prefix)
}

// logStreams returns the logs that the flags select. If several are selected, it warns about
// containers that have no log yet and leaves them out.
func (a *app) logStreams(f logsFlags, pods []*v1.Pod) ([]logStream, error) {
	var streams []logStream
	for _, p := range pods {
		chosen := summary.InitialFirst(summary.Roles(p))
		if !f.all {
			r, err := query.Container(a.ErrOut, p, f.container)
			if err != nil {
				return nil, err
			}
			chosen = []summary.Role{r}
		}
		for _, r := range chosen {
			inst, err := query.Instance(p, r, f.previous)
			if err != nil && (f.all || f.selector != "") {
				fmt.Fprintln(a.ErrOut, "warning:", err)
				continue
			}
			if err != nil {
				return nil, err
			}
			streams = append(streams, logStream{
				role:  r,
				inst:  inst,
				label: "[pod/" + p.Name + "/" + r.Container.Name + "] ",
			})
		}
	}
	if len(streams) == 0 {
		return nil, &cli.Error{Code: cli.ExitFailed, Err: errors.New("there is no such log")}
	}
	return streams, nil
}

// printStreams prints logs one after the other, or concurrently if they are followed.
func (a *app) printStreams(ctx context.Context, streams []logStream, o containerlog.ReadOptions, prefix bool) error {
	var mu sync.Mutex
	errs := make([]error, len(streams))
	var reading sync.WaitGroup
	for i, s := range streams {
		out, errOut := a.Out, a.ErrOut
		var ends []*prefixer
		if prefix {
			label := s.label
			if printers.Coloured(a.Out) {
				label = printers.Colour(label, labelColours[i%len(labelColours)])
			}
			for _, w := range []*io.Writer{&out, &errOut} {
				p := &prefixer{to: *w, label: label, mu: &mu}
				ends, *w = append(ends, p), p
			}
		}
		read := func() {
			errs[i] = a.readLogs(ctx, s, o, out, errOut)
			for _, p := range ends {
				errs[i] = errors.Join(errs[i], p.end())
			}
		}
		if o.Follow {
			reading.Go(read)
		} else {
			read()
		}
	}
	reading.Wait()
	return errors.Join(errs...)
}

// readLogs prints the log of an instance. If the log is followed, it goes on with the logs of the
// instances that come after it.
func (a *app) readLogs(ctx context.Context, s logStream, o containerlog.ReadOptions, out, errOut io.Writer) error {
	for first := true; ; first = false {
		err := a.readLog(ctx, s.inst, o, out, errOut)
		// The log of an instance may be removed already if other instances followed soon.
		if !o.Follow || err != nil && (first || !errors.Is(err, errNoLog)) {
			return err
		}
		next, more, err := a.successor(ctx, s)
		if err != nil || !more {
			return err
		}
		s.inst, o.Tail, o.Since = next, nil, time.Time{}
	}
}

// successor waits for the instance that follows an instance that has ended. more is false if there
// will be none.
func (a *app) successor(ctx context.Context, s logStream) (next pod.Instance, more bool, err error) {
	next = s.inst
	next.ID, next.Attempt = "", next.Attempt+1
	err = a.pods().OnChange(ctx, a.dirs().Statuses(), func() (bool, error) {
		p, err := query.ReadPod(a.dirs().Status(s.inst.Key))
		if errors.Is(err, fs.ErrNotExist) || err == nil && p.UID != s.inst.UID {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		i := slices.IndexFunc(summary.Roles(p), func(r summary.Role) bool { return r.Container.Name == s.inst.Container })
		if i < 0 {
			return true, nil
		}
		r := summary.Roles(p)[i]
		if r.Status != nil && int(r.Status.RestartCount) >= next.Attempt {
			more = true
			if int(r.Status.RestartCount) == next.Attempt {
				next.ID = r.InstanceID()
			}
			return true, nil
		}
		_, alive := agent.LastSeen(a.dirs())
		kept, known := agent.Kept(a.dirs(), s.inst.Key)
		return !alive || known && !kept || overForGood(p, r), nil
	})
	return next, more, err
}

// overForGood reports whether a container will not run again.
func overForGood(p *v1.Pod, r summary.Role) bool {
	if p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
		return true
	}
	if r.Status == nil || r.Status.State.Terminated == nil {
		return false
	}
	code := int(r.Status.State.Terminated.ExitCode)
	return r.Init && !pod.IsSidecar(r.Container) && code == 0 || !plan.ShouldRestart(p, r.Container, code)
}

// labelColours are the colours of the prefixes, so that the user can tell containers apart.
var labelColours = [...]string{"36", "33", "35", "32", "34", "96", "93", "95"}

// prefixer writes a label before each line. Prefixers that share mu write whole lines, so that the
// lines of several logs are not mixed.
type prefixer struct {
	to    io.Writer
	label string
	mu    *sync.Mutex
	rest  []byte // a line whose end has not been written yet
}

func (p *prefixer) Write(b []byte) (int, error) {
	var text []byte
	for line := range bytes.Lines(b) {
		if !bytes.HasSuffix(line, []byte{'\n'}) {
			p.rest = append(p.rest, line...)
			continue
		}
		text = append(append(append(text, p.label...), p.rest...), line...)
		p.rest = p.rest[:0]
	}
	if len(text) == 0 {
		return len(b), nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.to.Write(text); err != nil {
		return 0, err
	}
	return len(b), nil
}

// end writes a last line that has no line feed.
func (p *prefixer) end() error {
	if len(p.rest) == 0 {
		return nil
	}
	_, err := p.Write([]byte{'\n'})
	return err
}

// readLog prints the log of an instance. It first converts raw output that no other process has
// converted yet.
func (a *app) readLog(ctx context.Context, inst pod.Instance, o containerlog.ReadOptions, out, errOut io.Writer) error {
	dirs := a.dirs()
	if err := containerlog.CatchUp(ctx, dirs, inst); err != nil {
		if ctx.Err() != nil {
			return err
		}
		fmt.Fprintf(a.ErrOut, "warning: the newest lines may be missing: %v\n", err)
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
	err := containerlog.Read(ctx, dirs.ContainerLog(inst.Key, inst.UID, inst.Container, inst.Attempt), o, out, errOut)
	if errors.Is(err, fs.ErrNotExist) {
		return &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("container %q in pod %q has %w of run %d any more",
			inst.Container, inst.Key.Name, errNoLog, inst.Attempt)}
	}
	return err
}

var errNoLog = errors.New("no log")

// keepUpEvery is how often a followed log is converted, in case no other process does it.
const keepUpEvery = 250 * time.Millisecond

// keepUp converts the log of an instance until ctx ends. It closes stop when the instance has ended
// and its log has all of its output.
func keepUp(ctx context.Context, dirs layout.Dirs, inst pod.Instance, stop chan<- struct{}) {
	ticker := time.NewTicker(keepUpEvery)
	defer ticker.Stop()
	for {
		// The state is read before the conversion: if the instance has ended, all of its output is
		// there to be converted.
		ended := containerlog.Ended(dirs, inst)
		// A failure, such as a full disk, is retried. The process that owns the log reports it.
		if err := containerlog.CatchUp(ctx, dirs, inst); err == nil && ended {
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
