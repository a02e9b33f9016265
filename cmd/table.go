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

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/summary"
	"podrun.io/podrun/internal/manifest"
)

// table prints rows with aligned columns. Columns never become narrower, so that rows printed later
// stay aligned.
type table struct {
	out    io.Writer
	widths []int
	// fit is the width of the terminal, at which the last column is cut off; 0 means no limit.
	fit int
	// paint has functions that colour the cells of a column, by its index. The header is not
	// coloured.
	paint map[int]func(string) string
	begun bool
}

// newTable returns a table on standard output that fits the width of the terminal, if there is one.
func (a *app) newTable() table {
	t := table{out: a.Out}
	if f := cli.TerminalOf(a.Out); f != nil {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil {
			t.fit = width
		}
	}
	return t
}

// print prints rows. Three spaces separate the columns; the last column is not padded.
func (t *table) print(rows ...[]string) error {
	for _, row := range rows {
		for i, cell := range row {
			row[i] = summary.Plain(cell)
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
		row = row[:len(row)-1] // no trailing spaces
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

// leastColumn is the minimum width of the last column, even on a terminal that is too narrow.
const leastColumn = 16

// cut shortens text to n characters, the last of which is an ellipsis.
func cut(text string, n int) string {
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	return strings.TrimRight(string([]rune(text)[:n-1]), " ") + "…"
}

// columns selects the columns of the table of pods.
type columns struct{ namespace, wide bool }

// status returns the index of the STATUS column.
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
	s := summary.Of(p)
	restarts := strconv.Itoa(s.Restarts)
	if s.Restarts > 0 && !s.LastRestart.IsZero() {
		restarts += " (" + age(s.LastRestart, now) + " ago)"
	}
	created := p.CreationTimestamp.Time
	if created.IsZero() && p.Status.StartTime != nil {
		created = p.Status.StartTime.Time
	}
	row := []string{p.Name, fmt.Sprintf("%d/%d", s.Ready, s.Containers), s.Text, restarts, age(created, now)}
	if c.wide {
		row = append(row, orNone(p.Status.PodIP), orNone(p.Spec.NodeName), cell(p))
	}
	row = append(row, summary.Why(p, now))
	if c.namespace {
		row = append([]string{p.Namespace}, row...)
	}
	return row
}

// cell returns the MANIFEST column of a pod: the path of its manifest, and a short form of the
// error in it.
func cell(p *v1.Pod) string {
	path, wrong := manifest.OriginOf(p).Path, p.Annotations[manifest.AnnotationError]
	if wrong == "" {
		return orNone(path)
	}
	if other, _, twice := strings.Cut(wrong, ": pod "+p.Namespace+"/"+p.Name+" is also in "); twice &&
		!strings.Contains(other, "\n") {
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
