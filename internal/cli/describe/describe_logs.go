package describe

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/containerlog"
	"podrun.io/podrun/internal/containerlog/cri"
	"podrun.io/podrun/internal/event"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status/summary"
)

// What describe prints of the log of a container that is not well: the last lines and, since a line may have any
// length, no more than the last bytes.
const (
	lastLines = 10
	lastBytes = 64 << 10
)

// logs prints the last log lines of the containers that are not well.
func (d *Printer) logs(ctx context.Context, p *v1.Pod) {
	for _, r := range summary.InitialFirst(summary.Roles(p)) {
		if r.Status == nil || !hasFailed(p, r) {
			continue
		}
		restarted := r.Status.State.Running != nil && r.Status.LastTerminationState.Terminated != nil
		inst, err := query.Instance(p, r, restarted)
		if err != nil {
			continue // the container has no log yet
		}
		text := d.tail(ctx, inst)
		if text == "" {
			continue
		}
		fmt.Fprintf(d.Out, "Last Log of %s:\n", r.Container.Name)
		for line := range strings.Lines(text) {
			fmt.Fprintf(d.Out, "  %s\n", summary.Plain(strings.TrimRight(line, "\r\n")))
		}
	}
}

// hasFailed reports whether a container failed, or has terminated before and is not ready now.
func hasFailed(p *v1.Pod, r summary.Role) bool {
	if t := r.Status.State.Terminated; t != nil {
		return t.ExitCode != 0
	}
	before := r.Status.LastTerminationState.Terminated
	return p.Status.Phase != v1.PodSucceeded && before != nil &&
		(before.ExitCode != 0 || r.Status.State.Waiting != nil) &&
		!r.Status.Ready
}

// tail returns the last log lines of an instance, of standard output and standard error, or ""
// if there is no log any more.
func (d *Printer) tail(ctx context.Context, inst pod.Instance) string {
	logs := containerlog.Reader{Dirs: d.Dirs, Warn: func(err error) {
		d.Log.Debug("converting container log failed, the newest lines may be missing", "err", err)
	}}
	lines, out := lastLines, containerlog.LastBytes{Max: lastBytes}
	err := logs.Read(ctx, inst, cri.ReadOptions{Tail: &lines}, &out, &out)
	if err != nil {
		return ""
	}
	return out.String()
}

// records returns the events of the revision.
func (d *Printer) records(p *v1.Pod) ([]event.Record, error) {
	all, err := event.Read(d.Dirs)
	return slices.DeleteFunc(all, func(r event.Record) bool {
		of := pod.Key{Namespace: r.Namespace, Name: r.Name}
		return r.Kind != "" || of != pod.KeyOf(p) || r.UID != p.UID && r.UID != ""
	}), err
}

// events prints events, each with the container that it is about.
func (d *Printer) events(records []event.Record, now time.Time) error {
	if len(records) == 0 {
		return nil
	}
	rows := [][]string{{"  Type", "Reason", "Age", "Container", "Message"}}
	for _, r := range records {
		when := printers.Age(r.Last, now)
		if r.Count > 1 {
			when += " (x" + strconv.Itoa(r.Count) + " over " + printers.Age(r.First, now) + ")"
		}
		rows = append(rows, []string{
			"  " + r.Event().Type, r.Reason, when, printers.OrNone(r.Container),
			strings.ReplaceAll(r.Message, "\n", "; "),
		})
	}
	fmt.Fprintln(d.Out, "Events:")
	return printers.Rows(d.Out, rows...)
}
