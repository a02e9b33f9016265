// Package logs prints the logs of containers: one or several, once or as long as they grow, across
// the restarts of a container.
//
// It does not know the format of the log files: package containerlog reads them. Begin reading at
// Printer.
package logs

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/containerlog/cri"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status/summary"
)

// Printer prints the logs of containers.
type Printer struct {
	Out, ErrOut io.Writer
	Pods        *query.Reader
}

// Log is the log of one container.
type Log struct {
	role  summary.Role
	inst  pod.Instance
	label string
}

// Selection selects the logs of containers.
type Selection struct {
	Container string // "" selects the default container
	All       bool   // all containers
	Previous  bool   // the previous instance of each container
	// Several reports that several logs may be selected. Containers without a log are then no error.
	Several bool
}

// Select returns the logs of pods that f selects. If several may be selected, it warns about
// containers that have no log yet and leaves them out.
func (l *Printer) Select(pods []*v1.Pod, f Selection) ([]Log, error) {
	var logs []Log
	for _, p := range pods {
		selected := summary.InitialFirst(summary.Roles(p))
		if !f.All {
			r, err := query.Container(l.ErrOut, p, f.Container)
			if err != nil {
				return nil, err
			}
			selected = []summary.Role{r}
		}
		for _, r := range selected {
			inst, err := query.Instance(p, r, f.Previous)
			if err != nil && f.Several {
				cli.Warnf(l.ErrOut, "%v", err)
				continue
			}
			if err != nil {
				return nil, err
			}
			logs = append(logs, Log{
				role:  r,
				inst:  inst,
				label: "[pod/" + p.Name + "/" + r.Container.Name + "] ",
			})
		}
	}
	if len(logs) == 0 {
		return nil, &cli.Error{Code: cli.ExitFailed, Err: errors.New("there is no such log")}
	}
	return logs, nil
}

// Options select how logs are printed.
type Options struct {
	Follow     bool
	Timestamps bool
	Prefix     bool      // prefix each line with the pod and the container
	Tail       int       // number of most recent lines; -1: all
	Since      time.Time // zero: all
}

// Print prints logs one after the other, or concurrently and line by line if they are followed.
func (l *Printer) Print(ctx context.Context, logs []Log, options Options) error {
	o := cri.ReadOptions{
		Follow: options.Follow, Timestamps: options.Timestamps, Since: options.Since,
	}
	if options.Tail >= 0 {
		o.Tail = &options.Tail
	}
	var mu sync.Mutex
	errs := make([]error, len(logs))
	var reading sync.WaitGroup
	for i, s := range logs {
		out, errOut := l.Out, l.ErrOut
		var ends []*prefixer
		if options.Prefix || o.Follow && len(logs) > 1 {
			label := s.label
			switch {
			case !options.Prefix:
				label = "" // only whole lines are written
			case printers.Coloured(l.Out):
				label = printers.Colour(label, printers.SeriesColour(i))
			}
			for _, w := range []*io.Writer{&out, &errOut} {
				p := &prefixer{to: *w, label: label, mu: &mu}
				ends, *w = append(ends, p), p
			}
		}
		read := func() {
			errs[i] = l.readLogs(ctx, s, o, out, errOut)
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
func (l *Printer) readLogs(ctx context.Context, s Log, o cri.ReadOptions, out, errOut io.Writer) error {
	for first := true; ; first = false {
		err := l.readLog(ctx, s.inst, o, out, errOut)
		// The log of an instance may be removed already if other instances followed soon.
		if !o.Follow || err != nil && (first || !errors.Is(err, errNoLog)) {
			return err
		}
		next, more, err := l.successor(ctx, s)
		if err != nil || !more {
			return err
		}
		s.inst, o.Tail, o.Since = next, nil, time.Time{}
	}
}
