package top

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/status/summary"
)

// watch measures again and again until ctx ends, and prints a table each time, with what was used as a line: in place
// on a terminal, otherwise one table after another. The lines begin with what serve has of the last hour. Pods returns
// the pods as they are by then.
func watch(ctx context.Context, to cli.Streams, pods func() ([]*v1.Pod, error), o Options) error {
	kept := before(ctx, o)
	size := cli.SizeOf(to.Out)
	for {
		all, err := pods()
		if err != nil {
			return err
		}
		running, err := Measure(ctx, Running(all), o.Interval)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		Sort(running, o.SortBy)
		now := time.Now()
		kept.remember(running, now)
		var text strings.Builder
		width := 0
		if size != nil {
			width, _ = size()
		}
		l := fitOf(running, width, o)
		fmt.Fprintf(&text, "%s, %s\n", now.Format(time.TimeOnly), kept.about(o.Interval, l))
		if err := printTable(&text, running, kept, l, o); err != nil {
			return err
		}
		if err := show(to.Out, text.String(), size); err != nil {
			return err
		}
	}
}

// about says what the figures and the lines are.
func (p *past) about(interval time.Duration, l fit) string {
	if l.columns == 0 {
		return fmt.Sprintf("measured over %s", interval)
	}
	if p.column == 0 {
		return fmt.Sprintf("each measured over %s, the last %d times", interval, samples)
	}
	return fmt.Sprintf("measured over %s; recent: the last %s, each character %s",
		interval, duration.HumanDuration(samples*p.column), duration.HumanDuration(p.column))
}

// key is a container's, as long as it is the same one: its line begins anew with a new pod of that name, but not if it
// starts again.
func (u *Usage) key() string { return string(u.pod.UID) + "/" + u.name }

// printTable prints the table of one measurement.
func printTable(out io.Writer, running []Usage, kept *past, l fit, o Options) error {
	if len(running) == 0 {
		_, err := fmt.Fprintln(out, "No running containers found")
		return err
	}
	return Print(out, running, kept, l, o)
}

// lines returns what a container has used as lines of so many columns, the newest.
func (l *line) lines(u Usage, columns int) (cpu, memory string) {
	most, bytes := limits(u)
	last := func(line string) string { return string([]rune(line)[samples-columns:]) }
	return last(sparkline(l.cpu, most)), last(sparkline(l.memory, bytes))
}

// limits returns a container's limits in the units of its past, 0 for none.
func limits(u Usage) (cpu, memory float64) {
	for _, r := range summary.Roles(u.pod) {
		if r.Container.Name == u.name {
			l := r.Container.Resources.Limits
			return float64(l.Cpu().MilliValue()), float64(l.Memory().Value())
		}
	}
	return 0, 0
}

// levels are the characters of a line, from nothing to the highest.
var levels = []rune("▁▂▃▄▅▆▇█")

// sparkline draws columns from 0 to the limit, or to the highest of them if there is no limit or one is above it. The
// newest is at its end, and those in which nothing was measured are blank.
func sparkline(all [samples]mean, limit float64) string {
	highest := limit
	for _, m := range all {
		v, _ := m.value()
		highest = max(highest, v)
	}
	var line strings.Builder
	for _, m := range all {
		v, is := m.value()
		switch {
		case !is:
			line.WriteByte(' ')
		case highest > 0:
			line.WriteRune(levels[min(int(v/highest*float64(len(levels))), len(levels)-1)])
		default:
			line.WriteRune(levels[0])
		}
	}
	return line.String()
}

// Sequences that move the cursor to the upper left corner, and that erase the rest of a line or of the screen.
const (
	home       = "\x1b[H"
	eraseLine  = "\x1b[K"
	eraseBelow = "\x1b[J"
)

// show prints a table, in place of the one before on a terminal, as far as it fits.
func show(out io.Writer, text string, size func() (width, height int)) error {
	if size == nil {
		_, err := io.WriteString(out, text+"\n")
		return err
	}
	width, height := size()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if most := max(height-1, 3); len(lines) > most {
		lines = append(lines[:most-1], printers.Count(len(lines)-most+1, "more container"))
	}
	for i, line := range lines {
		if characters := []rune(line); len(characters) > width {
			lines[i] = string(characters[:width])
		}
	}
	_, err := io.WriteString(out, home+strings.Join(lines, eraseLine+"\n")+eraseLine+"\n"+eraseBelow)
	return err
}
