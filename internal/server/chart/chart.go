// Package chart arranges for a pod's page what its containers did in the last 24 hours. It keeps nothing: package
// timeline/day has it.
//
// Begin reading at Of.
package chart

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"podrun.io/podrun/internal/timeline"
	"podrun.io/podrun/internal/timeline/day"
)

// Width is how wide a row is, in its own units.
const Width = 1000

// pulling is a state that only the spans of the timeline tell apart from waiting.
const pulling day.State = "pulling"

// maxEvents is how many of the last marks have a text.
const maxEvents = 20

// Chart is what the page shows; without rows, nothing is kept.
type Chart struct {
	// Span is how long it is, for people, and Ticks are equal parts of it, from its begin to now.
	Span  string
	Ticks []string
	Rows  []Row
	Marks []Bar
	// Events are what the last marks mean, the newest first.
	Events []Event
	States []day.State // which are in it, for the legend
}

// Row is a container.
type Row struct {
	Name, Label string
	Bars        []Bar
}

// Bar is a part of a row, of Width; Kind is a state or the kind of a mark.
type Bar struct {
	X, Width    int
	Kind, Title string
}

// Event is a mark.
type Event struct {
	At         time.Time
	Kind, Text string
}

// spans are how long a chart may be, for people, and into how many parts it is divided. It moves on after some time, so
// that a page is not sent without need.
var spans = []struct {
	long, step time.Duration
	name       string
	parts      int
}{
	{10 * time.Minute, 5 * time.Second, "10 minutes", 5},
	{time.Hour, 10 * time.Second, "hour", 4},
	{6 * time.Hour, time.Minute, "6 hours", 6},
	{day.Kept, 2 * time.Minute, "24 hours", 4},
}

// Of returns the chart of a pod. pulls are spans of the timeline that are the pod's; plain makes a text of others
// harmless.
func Of(p day.Pod, pulls []timeline.Span, now time.Time, plain func(string) string) Chart {
	begin := now
	for _, c := range p.Containers {
		for _, b := range c.Bars {
			if b.Begin.Before(begin) {
				begin = b.Begin
			}
		}
	}
	if len(p.Containers) == 0 {
		return Chart{}
	}
	of := spans[0]
	for _, one := range spans {
		if of = one; now.Sub(begin) <= one.long {
			break
		}
	}
	end := now.Truncate(of.step).Add(of.step)
	s := scale{begin: end.Add(-of.long), end: end, now: now.Truncate(of.step), plain: plain}
	out := Chart{Span: of.name}
	for i := range of.parts + 1 {
		if back := of.long * time.Duration(of.parts-i) / time.Duration(of.parts); back > 0 {
			out.Ticks = append(out.Ticks, "−"+short(back))
		}
	}
	out.Ticks = append(out.Ticks, "now")
	seen := map[day.State]bool{}
	for _, c := range p.Containers {
		row := s.row(c, pulls)
		for _, b := range row.Bars {
			seen[day.State(b.Kind)] = true
		}
		out.Rows = append(out.Rows, row)
	}
	for _, state := range states {
		if seen[state] {
			out.States = append(out.States, state)
		}
	}
	for _, m := range p.Marks {
		if x, _, in := s.at(m.At, m.At); in {
			out.Marks = append(out.Marks, Bar{min(x, Width-3), 3, string(m.Kind), plain(m.Text)})
			out.Events = append(out.Events, Event{m.At, string(m.Kind), plain(m.Text)})
		}
	}
	slices.Reverse(out.Events)
	out.Events = out.Events[:min(len(out.Events), maxEvents)]
	return out
}

// states are all states, in the order of the legend.
var states = []day.State{day.Running, day.NotReady, day.Waiting, pulling, day.Failed, day.Ended}

// scale is the time that a chart shows.
type scale struct {
	begin, end, now time.Time
	plain           func(string) string
}

// row returns the row of a container.
func (s scale) row(c day.Container, pulls []timeline.Span) Row {
	row := Row{Name: c.Name}
	of := map[day.State]time.Duration{}
	add := func(b day.Bar) {
		end := b.End
		if end.IsZero() {
			if end = s.now; b.Begin.After(end) {
				end = b.Begin
			}
		}
		x, width, in := s.at(b.Begin, end)
		if !in {
			return
		}
		if b.Begin.Before(s.begin) {
			b.Begin = s.begin
		}
		of[b.State] += end.Sub(b.Begin)
		title := fmt.Sprintf("%s, %s", Word(b.State), short(end.Sub(b.Begin)))
		if b.Detail != "" {
			title += ": " + s.plain(b.Detail)
		}
		row.Bars = append(row.Bars, Bar{x, width, string(b.State), title})
	}
	for _, b := range c.Bars {
		add(b)
	}
	for _, p := range pulls {
		if p.OfPull() && p.Container == c.Name {
			b := day.Bar{State: pulling, Begin: p.Begin, Detail: p.Detail}
			if p.End != nil {
				b.End = *p.End
			}
			add(b)
		}
	}
	var parts []string
	for _, state := range states {
		if d := of[state]; d > 0 {
			parts = append(parts, Word(state)+" "+short(d))
		}
	}
	row.Label = c.Name + ": " + strings.Join(parts, ", ")
	return row
}

// at returns where a time is in a row; in reports that it is in it at all. It is never too small to be seen.
func (s scale) at(from, to time.Time) (x, width int, in bool) {
	if to.Before(s.begin) || from.After(s.end) {
		return 0, 0, false
	}
	part := func(t time.Time) int {
		return min(max(int(Width*t.Sub(s.begin)/s.end.Sub(s.begin)), 0), Width)
	}
	x = min(part(from), Width-2)
	return x, max(part(to)-x, 2), true
}

// Word is a state as the page calls it.
func Word(s day.State) string {
	if s == day.NotReady {
		return "running, not ready"
	}
	return string(s)
}

// short returns a duration for people.
func short(d time.Duration) string {
	switch {
	case d < time.Second:
		return "<1s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 2*time.Hour && d%time.Hour != 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return fmt.Sprintf("%dh", d/time.Hour)
}
