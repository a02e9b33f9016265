package chart

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"podrun.io/podrun/internal/timeline"
	"podrun.io/podrun/internal/timeline/day"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

func text(c Chart) string {
	var out []string
	for _, r := range c.Rows {
		out = append(out, r.Label)
		for _, b := range r.Bars {
			out = append(out, fmt.Sprintf("%d+%d %s %s", b.X, b.Width, b.Kind, b.Title))
		}
	}
	for _, m := range c.Marks {
		out = append(out, fmt.Sprintf("%d %s", m.X, m.Kind))
	}
	for _, e := range c.Events {
		out = append(out, e.Kind+": "+e.Text)
	}
	return strings.Join(out, "\n")
}

func TestOf(t *testing.T) {
	t.Parallel()
	plain := func(text string) string { return strings.ToUpper(text) }
	fetched, pulled := ago(51*time.Minute), ago(45*time.Minute)
	p := day.Pod{
		Containers: []day.Container{
			{Name: "web", Bars: []day.Bar{
				{State: day.Waiting, Begin: ago(60 * time.Minute), End: ago(30 * time.Minute), Detail: "x"},
				{State: day.Running, Begin: ago(30 * time.Minute), End: ago(20 * time.Minute), Detail: ""},
				{State: day.NotReady, Begin: ago(20 * time.Minute), End: time.Time{}, Detail: ""},
			}},
			{Name: "beside", Bars: []day.Bar{{State: day.Ended, Begin: ago(time.Second), End: time.Time{}, Detail: "y"}}},
		},
		Marks: []day.Mark{{At: ago(30 * time.Minute), Kind: day.Restart, Text: "one"}, {At: now, Kind: day.Edit, Text: "two"}},
	}
	pulls := []timeline.Span{
		{Container: "web", Kind: timeline.Pull, Begin: ago(55 * time.Minute), End: &fetched, Detail: "image"},
		{Container: "web", Kind: timeline.Unpack, Begin: fetched, End: &pulled, Detail: "image"},
		{Container: "web", Kind: timeline.Start, Begin: ago(55 * time.Minute)},
		{Container: "other", Kind: timeline.Pull, Begin: ago(55 * time.Minute)},
	}
	c := Of(p, pulls, now, plain)
	want := `web: running 10m, running, not ready 20m, waiting 29m, pulling 10m
0+497 waiting waiting, 29m: X
497+166 running running, 10m
663+334 not-ready running, not ready, 20m
80+67 pulling pulling, 4m: IMAGE
147+100 pulling pulling, 6m: IMAGE
beside: ended 1s
996+2 ended ended, 1s: Y
497 restart
997 edit
edit: TWO
restart: ONE`
	if got := text(c); got != want || c.Span != "hour" || fmt.Sprint(c.Ticks) != "[−1h −45m −30m −15m now]" ||
		fmt.Sprint(c.States) != "[running not-ready waiting pulling ended]" {
		t.Errorf("%s\n%s\n%v %v\nwant:\n%s", c.Span, got, c.Ticks, c.States, want)
	}
	// A chart is as long as it must be, and what is older is not in it.
	p.Containers[0].Bars[0].Begin = ago(5 * time.Hour)
	if c = Of(p, nil, now, plain); c.Span != "6 hours" || len(c.Ticks) != 7 || !strings.Contains(text(c), "waiting 4h") {
		t.Errorf("%s %v\n%s", c.Span, c.Ticks, text(c))
	}
	p.Containers[0].Bars[0] = day.Bar{State: day.Waiting, Begin: ago(30 * time.Hour), End: ago(26 * time.Hour)}
	p.Containers[0].Bars[1].Begin = ago(25 * time.Hour)
	p.Marks[0].At = ago(25 * time.Hour)
	if c = Of(p, nil, now, plain); c.Span != "24 hours" || strings.Contains(text(c), "waiting") || len(c.Marks) != 1 ||
		!strings.HasPrefix(text(c), "web: running 23h,") {
		t.Errorf("%s\n%s", c.Span, text(c))
	}
	if c = Of(day.Pod{}, nil, now, plain); len(c.Rows) != 0 || len(c.Ticks) != 0 {
		t.Error(c)
	}
	// A page is not sent at each moment.
	one, other := Of(p, nil, now.Add(time.Second), plain), Of(p, nil, now.Add(2*time.Second), plain)
	if text(one) != text(other) {
		t.Errorf("%s\n%s", text(one), text(other))
	}
}
