package top

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/status/summary"
)

// samples is how many of the last samples are shown.
const samples = 30

// past is what a container has used, in its last samples: thousandths of a processor and bytes.
type past struct{ cpu, memory []float64 }

// watch measures again and again until ctx ends, and prints a table each time, with the last samples as a line: in
// place on a terminal, otherwise one table after another. Pods returns the pods as they are by then.
func watch(ctx context.Context, to cli.Streams, pods func() ([]*v1.Pod, error), o Options) error {
	kept := map[string]*past{}
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
		kept = remember(kept, running)
		var text strings.Builder
		fmt.Fprintf(&text, "%s, each measured over %s, the last %d times\n", time.Now().Format(time.TimeOnly), o.Interval, samples)
		if err := printTable(&text, running, kept, o); err != nil {
			return err
		}
		if err := show(to.Out, text.String(), size); err != nil {
			return err
		}
	}
}

// key is a container's, as long as it is the same one: its line begins anew with a new pod of that name, but not if it
// starts again.
func (u *Usage) key() string { return string(u.pod.UID) + "/" + u.name }

// remember adds what was measured, and forgets the containers that do not run any more.
func remember(before map[string]*past, running []Usage) map[string]*past {
	now := map[string]*past{}
	for _, u := range running {
		p := before[u.key()]
		if p == nil {
			p = &past{}
		}
		p.cpu = last(append(p.cpu, float64(u.millicores)))
		p.memory = last(append(p.memory, float64(u.after.WorkingSet)))
		now[u.key()] = p
	}
	return now
}

// last returns the last of a container's samples.
func last(all []float64) []float64 { return all[max(0, len(all)-samples):] }

// printTable prints the table of one measurement.
func printTable(out io.Writer, running []Usage, kept map[string]*past, o Options) error {
	if len(running) == 0 {
		_, err := fmt.Fprintln(out, "No running containers found")
		return err
	}
	return Print(out, running, kept, o)
}

// lines returns what a container has used as lines.
func (p *past) lines(u Usage) (cpu, memory string) {
	most, bytes := limits(u)
	return sparkline(p.cpu, most), sparkline(p.memory, bytes)
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

// sparkline draws samples from 0 to the limit, or to the highest of them if there is no limit or one is above it. Its
// width is always that of all samples, the newest at its end.
func sparkline(all []float64, limit float64) string {
	highest := limit
	for _, v := range all {
		highest = max(highest, v)
	}
	line := strings.Repeat(" ", samples-len(all))
	for _, v := range all {
		level := 0
		if highest > 0 {
			level = min(int(v/highest*float64(len(levels))), len(levels)-1)
		}
		line += string(levels[level])
	}
	return line
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
