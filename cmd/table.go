package cmd

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"podrun.io/podrun/internal/manifest"
)

// table prints rows with aligned columns. Its columns only grow, so that rows printed later stay in line.
type table struct {
	out    io.Writer
	widths []int
	// fit is the terminal's width, which the last column must not pass; 0: as wide as need be.
	fit int
	// paint colours the cells of columns, by their index; the header is left alone.
	paint map[int]func(string) string
	begun bool
}

// newTable makes a table that fits the terminal, if there is one.
func (a *app) newTable() table {
	t := table{out: a.out}
	if f := terminalOf(a.out); f != nil {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil {
			t.fit = width
		}
	}
	return t
}

// print prints rows; all columns but the last are padded, three blanks apart.
func (t *table) print(rows ...[]string) error {
	for _, row := range rows {
		for i, cell := range row {
			row[i] = plain(cell)
			if i == len(t.widths) {
				t.widths = append(t.widths, 0)
			}
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		t.row(&b, row)
		t.begun = true
	}
	_, err := io.WriteString(t.out, b.String())
	return err
}

func (t *table) row(b *strings.Builder, row []string) {
	used := 0
	for len(row) > 0 && row[len(row)-1] == "" {
		row = row[:len(row)-1] // no blanks at the end of a line
	}
	for i, cell := range row {
		last := i == len(row)-1
		if last && i == len(t.widths)-1 && t.fit > 0 {
			cell = cut(cell, max(t.fit-used, leastColumn))
		}
		pad := t.widths[i] + 3 - utf8.RuneCountInString(cell)
		used += t.widths[i] + 3
		if paint := t.paint[i]; paint != nil && t.begun {
			cell = paint(cell)
		}
		b.WriteString(cell)
		if !last {
			b.WriteString(strings.Repeat(" ", pad))
		}
	}
	b.WriteByte('\n')
}

// leastColumn is how much of the last column is shown on however narrow a terminal.
const leastColumn = 16

// cut shortens text to n characters.
func cut(text string, n int) string {
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	return strings.TrimRight(string([]rune(text)[:n-1]), " ") + "…"
}

// columns choose what a row shows.
type columns struct{ namespace, wide bool }

// status is the index of the column that says how a pod is.
func (c columns) status() int {
	if c.namespace {
		return 3
	}
	return 2
}

func (c columns) header() []string {
	row := []string{"NAME", "READY", "STATUS", "RESTARTS", "AGE"}
	if c.wide {
		row = append(row, "IP", "NODE", "MANIFEST")
	}
	row = append(row, "REASON")
	if c.namespace {
		row = append([]string{"NAMESPACE"}, row...)
	}
	return row
}

func (c columns) row(p *v1.Pod, now time.Time) []string {
	s := summarize(p)
	restarts := strconv.Itoa(s.restarts)
	if s.restarts > 0 && !s.lastRestart.IsZero() {
		restarts += " (" + age(s.lastRestart, now) + " ago)"
	}
	created := p.CreationTimestamp.Time
	if created.IsZero() && p.Status.StartTime != nil {
		created = p.Status.StartTime.Time
	}
	row := []string{p.Name, fmt.Sprintf("%d/%d", s.ready, s.containers), s.text, restarts, age(created, now)}
	if c.wide {
		row = append(row, orNone(p.Status.PodIP), orNone(p.Spec.NodeName), place(p))
	}
	row = append(row, why(p, now))
	if c.namespace {
		row = append([]string{p.Namespace}, row...)
	}
	return row
}

// place is where a pod was read, and in brief what is wrong there now.
func place(p *v1.Pod) string {
	path, wrong := manifest.OriginOf(p).Path, p.Annotations[manifest.AnnotationError]
	if wrong == "" {
		return orNone(path)
	}
	if other, _, twice := strings.Cut(wrong, ": pod "+p.Namespace+"/"+p.Name+" is also in "); twice && !strings.Contains(other, "\n") {
		return path + " (also in " + other + ")"
	}
	rest, _ := strings.CutPrefix(wrong, path+":")
	line, _, _ := strings.Cut(rest, ":")
	if _, err := strconv.Atoi(line); err != nil {
		return path + " (bad)"
	}
	return path + " (bad: line " + line + ")"
}

func orNone(s string) string {
	if s == "" {
		return "<none>"
	}
	return s
}

func age(from, now time.Time) string {
	if from.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(from))
}

// summary is a pod in a line, as kubectl has it.
type summary struct {
	text              string
	ready, containers int
	restarts          int
	lastRestart       time.Time
}

func summarize(p *v1.Pod) summary {
	s := summary{text: string(p.Status.Phase), containers: len(p.Spec.Containers)}
	if p.Status.Reason != "" {
		s.text = p.Status.Reason
	}
	for i := range p.Spec.InitContainers {
		if sidecar(&p.Spec.InitContainers[i]) {
			s.containers++
		}
	}
	initializing, sidecars := s.initial(p)
	if !initializing || condition(p, v1.PodInitialized) {
		s.restarts, s.lastRestart = sidecars.restarts, sidecars.lastRestart
		s.main(p)
	}
	if p.DeletionTimestamp != nil && p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
		s.text = "Terminating"
	}
	return s
}

func sidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

func condition(p *v1.Pod, kind v1.PodConditionType) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

// initial judges the init containers: true when one of them keeps the pod, whose text is then set. The
// second result counts the restarts of the sidecars alone, which still matter later.
func (s *summary) initial(p *v1.Pod) (bool, summary) {
	isSidecar := map[string]bool{}
	for i := range p.Spec.InitContainers {
		isSidecar[p.Spec.InitContainers[i].Name] = sidecar(&p.Spec.InitContainers[i])
	}
	var sidecars summary
	for i, c := range p.Status.InitContainerStatuses {
		s.restarted(c)
		if isSidecar[c.Name] {
			sidecars.restarted(c)
		}
		t, w := c.State.Terminated, c.State.Waiting
		switch {
		case t != nil && t.ExitCode == 0:
			continue
		case isSidecar[c.Name] && c.Started != nil && *c.Started:
			if c.Ready {
				s.ready++
			}
			continue
		case t != nil:
			s.text = "Init:" + ended(t)
		case w != nil && w.Reason != "" && w.Reason != "PodInitializing":
			s.text = "Init:" + w.Reason
		default:
			s.text = fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers))
		}
		return true, sidecars
	}
	return false, sidecars
}

// main judges the main containers; the first one that is not well gives the text.
func (s *summary) main(p *v1.Pod) {
	running, completed := false, false
	for i := len(p.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := p.Status.ContainerStatuses[i]
		s.restarted(c)
		t, w := c.State.Terminated, c.State.Waiting
		switch {
		case w != nil && w.Reason != "":
			s.text, completed = w.Reason, false
		case t != nil:
			s.text, completed = ended(t), t.Reason == "Completed"
		case c.Ready && c.State.Running != nil:
			running = true
			s.ready++
		}
	}
	if completed && running {
		s.text = "NotReady"
		if condition(p, v1.PodReady) {
			s.text = "Running"
		}
	}
}

func ended(t *v1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}

func (s *summary) restarted(c v1.ContainerStatus) {
	s.restarts += int(c.RestartCount)
	if t := c.LastTerminationState.Terminated; t != nil && t.FinishedAt.After(s.lastRestart) {
		s.lastRestart = t.FinishedAt.Time
	}
}
