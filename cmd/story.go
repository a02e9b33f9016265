package cmd

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/cli/summary"
	"podrun.io/podrun/internal/containerlog"
	"podrun.io/podrun/internal/event"
	"podrun.io/podrun/internal/pod"
)

// lastLines is the number of log lines that describe prints of a container that is not well.
const lastLines = 10

// describeLogs prints the last log lines of the containers that are not well.
func (a *app) describeLogs(ctx context.Context, d description, p *v1.Pod) {
	for _, r := range summary.InitialFirst(summary.Roles(p)) {
		if r.Status == nil || !unwell(p, r) {
			continue
		}
		inst, err := query.Instance(p, r, r.Status.State.Running != nil && r.Status.LastTerminationState.Terminated != nil)
		if err != nil {
			continue // the container has no log yet
		}
		text := a.lastLines(ctx, inst)
		if text == "" {
			continue
		}
		fmt.Fprintf(d.out, "Last Log of %s:\n", r.Container.Name)
		for line := range strings.Lines(text) {
			fmt.Fprintf(d.out, "  %s\n", summary.Plain(strings.TrimRight(line, "\r\n")))
		}
	}
}

// unwell reports whether a container failed, or has terminated before and is not ready now.
func unwell(p *v1.Pod, r summary.Role) bool {
	if t := r.Status.State.Terminated; t != nil {
		return t.ExitCode != 0
	}
	before := r.Status.LastTerminationState.Terminated
	return p.Status.Phase != v1.PodSucceeded && before != nil &&
		(before.ExitCode != 0 || r.Status.State.Waiting != nil) &&
		!r.Status.Ready
}

// lastLines returns the last log lines of an instance, of standard output and standard error, or ""
// if there is no log any more.
func (a *app) lastLines(ctx context.Context, inst pod.Instance) string {
	if err := containerlog.CatchUp(ctx, a.dirs(), inst); err != nil {
		a.log.Debug("converting container log failed, the newest lines may be missing", "err", err)
	}
	tail := lastLines
	var out bytes.Buffer
	w := io.Writer(&out)
	err := containerlog.Read(
		ctx,
		a.dirs().ContainerLog(inst.Key, inst.UID, inst.Container, inst.Attempt),
		containerlog.ReadOptions{Tail: &tail},
		w,
		w,
	)
	if err != nil {
		return ""
	}
	return out.String()
}

// describeEvents prints the events of the revision.
func (a *app) describeEvents(d description, p *v1.Pod) error {
	records, err := event.Read(a.dirs())
	if err != nil {
		return err
	}
	rows := [][]string{{"  Type", "Reason", "Age", "Message"}}
	for _, r := range records {
		if (pod.Key{Namespace: r.Namespace, Name: r.Name}) != pod.KeyOf(p) || r.UID != p.UID && r.UID != "" {
			continue
		}
		when := printers.Age(r.Last, d.now)
		if r.Count > 1 {
			when += " (x" + strconv.Itoa(r.Count) + " over " + printers.Age(r.First, d.now) + ")"
		}
		rows = append(rows, []string{"  " + r.Event().Type, r.Reason, when, strings.ReplaceAll(r.Message, "\n", "; ")})
	}
	if len(rows) == 1 {
		return nil
	}
	fmt.Fprintln(d.out, "Events:")
	return printers.Rows(d.out, rows...)
}
