// Package describe prints the details of pods and workloads, as kubectl describe does, with the last log lines
// of its containers that have failed and the events of the pod.
//
// The pod's status in a word, and why it is not well, are those of package status/summary; log
// files are read by package containerlog. Begin reading at Printer.Selected and Printer.Pod.
package describe

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/event"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/status/summary"
)

// Printer prints the details of pods for the user, with the field names of kubectl where kubectl has
// the field.
type Printer struct {
	Out  io.Writer
	Dirs layout.Dirs
	Log  *slog.Logger
	Warn Warnings
}

// Pod prints the details of a pod, the last log lines of its containers that are not well, and its
// events.
func (d *Printer) Pod(ctx context.Context, p *v1.Pod) error {
	now := time.Now()
	records, err := d.records(p)
	d.pod(p, records, now)
	d.logs(ctx, p)
	if err != nil {
		return err
	}
	return d.events(records, now)
}

// line writes a field. It aligns further lines of the value with the first one, and writes nothing
// if the value is empty.
func (d *Printer) line(indent int, name, value string) {
	if value == "" {
		return
	}
	pad := strings.Repeat(" ", indent)
	const width = 20
	value = strings.ReplaceAll(
		strings.TrimRight(summary.Plain(value), "\n"),
		"\n",
		"\n"+strings.Repeat(" ", max(width, indent)),
	)
	label := plain(name) + ":"
	if len(label) >= width-indent {
		label += " "
	}
	fmt.Fprintf(d.Out, "%s%-*s%s\n", pad, width-indent, label, value)
}

func (d *Printer) pod(p *v1.Pod, records []event.Record, now time.Time) {
	origin := manifest.OriginOf(p)
	d.line(0, "Name", p.Name)
	d.line(0, "Namespace", p.Namespace)
	d.line(0, "UID", string(p.UID))
	d.line(0, "Manifest", printers.OrNone(origin.Path))
	d.line(0, "Manifest Error", p.Annotations[manifest.AnnotationError])
	d.line(0, "Rolled Back", p.Annotations[manifest.AnnotationRolledBack])
	d.line(0, "Warnings", p.Annotations[manifest.AnnotationWarnings])
	d.line(0, "Node", strings.TrimSuffix(p.Spec.NodeName+"/"+p.Status.HostIP, "/"))
	d.line(0, "Start Time", when(p.Status.StartTime))
	d.line(0, "Labels", pairs(p.Labels))
	annotations := maps.Clone(p.Annotations)
	delete(annotations, manifest.AnnotationError)
	delete(annotations, manifest.AnnotationRolledBack)
	delete(annotations, manifest.AnnotationWarnings)
	delete(annotations, manifest.AnnotationManifest)
	delete(annotations, manifest.AnnotationNext)
	d.line(0, "Annotations", pairs(annotations))
	d.line(0, "Status", summary.Of(p).Text)
	d.line(0, "Why", summary.Why(p, now))
	if at, err := time.Parse(time.RFC3339, p.Annotations[manifest.AnnotationNext]); err == nil {
		d.line(0, "Next Attempt", at.Local().Format(time.RFC1123Z))
	}
	d.line(0, "Reason", p.Status.Reason)
	d.line(0, "Message", p.Status.Message)
	d.line(0, "QoS Class", string(p.Status.QOSClass))
	d.line(0, "IP", printers.OrNone(p.Status.PodIP))
	show := func(title string, all []v1.Container, statuses []v1.ContainerStatus) {
		if len(all) > 0 {
			fmt.Fprintln(d.Out, title+":")
		}
		for _, c := range all {
			var s *v1.ContainerStatus
			if i := slices.IndexFunc(statuses, func(s v1.ContainerStatus) bool { return s.Name == c.Name }); i >= 0 {
				s = &statuses[i]
			}
			d.container(c, s)
			d.probes(c, s, records, now)
			d.environment(c)
			d.mounts(c)
		}
	}
	show("Init Containers", p.Spec.InitContainers, p.Status.InitContainerStatuses)
	show("Containers", p.Spec.Containers, p.Status.ContainerStatuses)
	d.conditions(p.Status.Conditions)
	d.volumes(p)
	d.line(0, "Node-Selectors", pairs(p.Spec.NodeSelector))
	d.line(0, "Tolerations", tolerations(p.Spec.Tolerations))
}

// container prints what a container is and the state that it is in. s is nil if it has no status yet.
func (d *Printer) container(c v1.Container, s *v1.ContainerStatus) {
	fmt.Fprintf(d.Out, "  %s:\n", plain(c.Name))
	d.line(4, "Image", c.Image)
	d.line(4, "Command", strings.Join(c.Command, " "))
	d.line(4, "Args", strings.Join(c.Args, " "))
	d.ports(c.Ports)
	if s != nil {
		d.line(4, "Container ID", s.ContainerID)
		d.line(4, "Image ID", s.ImageID)
		d.state("State", s.State)
		d.state("Last State", s.LastTerminationState)
		d.line(4, "Ready", boolean(s.Ready))
		d.line(4, "Restart Count", fmt.Sprint(s.RestartCount))
		d.block("Devices", devices(s.AllocatedResourcesStatus))
	}
	d.block("Limits", quantities(c.Resources.Limits))
	d.block("Requests", quantities(c.Resources.Requests))
}

func (d *Printer) state(title string, s v1.ContainerState) {
	switch {
	case s.Running != nil:
		d.line(4, title, "Running")
		d.line(6, "Started", when(&s.Running.StartedAt))
	case s.Waiting != nil:
		d.line(4, title, "Waiting")
		d.line(6, "Reason", s.Waiting.Reason)
		d.line(6, "Message", s.Waiting.Message)
	case s.Terminated != nil:
		t := s.Terminated
		d.line(4, title, "Terminated")
		d.line(6, "Reason", t.Reason)
		d.line(6, "Message", t.Message)
		d.line(6, "Exit Code", fmt.Sprint(t.ExitCode))
		d.line(6, "Started", when(&t.StartedAt))
		d.line(6, "Finished", when(&t.FinishedAt))
	}
}

func (d *Printer) conditions(all []v1.PodCondition) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(d.Out, "Conditions:")
	rows := [][]string{{"  Type", "Status", "Reason"}}
	for _, c := range all {
		rows = append(rows, []string{
			"  " + string(c.Type),
			string(c.Status),
			strings.TrimSuffix(c.Reason+": "+c.Message, ": "),
		})
	}
	_ = printers.Rows(d.Out, rows...) // an error is kept by Out: see Selected
}

func when(t *metav1.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return t.Format(time.RFC1123Z)
}

func boolean(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

// pairs returns the entries of a map as key=value lines, sorted by key.
func pairs(m map[string]string) string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, key+"="+m[key])
	}
	return strings.Join(lines, "\n")
}
