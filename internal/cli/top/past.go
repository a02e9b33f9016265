package top

import (
	"context"
	"slices"
	"time"

	"podrun.io/podrun/internal/cli/ask"
)

// samples is how many columns a line has.
const samples = 30

// columns are how much time a column may stand for when serve has what was used before.
var columns = []time.Duration{10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute}

// past is what containers have used, by Usage.key, in columns.
type past struct {
	// column is how much time each column stands for; 0: each is one measurement.
	column time.Duration
	// newest is the number of the newest column, which the lines of all containers end with.
	newest int64
	of     map[string]*line
}

// line is what a container has used, in thousandths of a processor and in bytes: a mean for each of the last columns.
type line struct{ cpu, memory [samples]mean }

// mean is the mean of the measurements of a column.
type mean struct {
	sum   float64
	count int
}

func (m *mean) add(v float64) { m.sum, m.count = m.sum+v, m.count+1 }

// value returns the mean; false if nothing was measured.
func (m mean) value() (float64, bool) {
	if m.count == 0 {
		return 0, false
	}
	return m.sum / float64(m.count), true
}

// remember adds what was measured at a time, and forgets the containers that do not run any more.
func (p *past) remember(running []Usage, now time.Time) {
	if p.column == 0 {
		p.advance(p.newest + 1)
	} else {
		p.advance(now.UnixNano() / int64(p.column))
	}
	before := p.of
	p.of = map[string]*line{}
	for _, u := range running {
		l := before[u.key()]
		if l == nil {
			l = &line{}
		}
		l.cpu[samples-1].add(float64(u.millicores))
		l.memory[samples-1].add(float64(u.after.WorkingSet))
		p.of[u.key()] = l
	}
}

// advance makes the column with a number the newest one. A clock that was set back empties the lines.
func (p *past) advance(number int64) {
	by := number - p.newest
	if by < 0 || by > samples {
		by = samples
	}
	p.newest = number
	for _, l := range p.of {
		for _, means := range []*[samples]mean{&l.cpu, &l.memory} {
			copy(means[:], means[by:])
			clear(means[samples-by:])
		}
	}
}

// hour is what serve has of the last hour, as its /api/v1/history shows it.
type hour struct {
	Interval float64    `json:"intervalSeconds"`
	End      *time.Time `json:"end"`
	Items    []struct {
		UID       string     `json:"uid"`
		Container string     `json:"container"`
		CPU       []*float64 `json:"cpuMillicores"`
		Memory    []*float64 `json:"memoryBytes"`
	} `json:"items"`
}

// maxAsk is how long serve may take to answer; else the lines begin with nothing.
const maxAsk = 2 * time.Second

// before returns what was used before now. It is empty if no serve runs, or if it has not measured longer than the
// lines would show anyway.
func before(ctx context.Context, o Options) *past {
	ctx, cancel := context.WithTimeout(ctx, maxAsk)
	defer cancel()
	var h hour
	if err := ask.Serve(ctx, o.Socket, "/api/v1/history", &h); err != nil {
		return &past{} // as long as nobody answers, there is no history
	}
	return h.past(o.Interval)
}

// past returns the lines of what serve has, for measurements over so much time as interval.
func (h hour) past(interval time.Duration) *past {
	every := time.Duration(h.Interval * float64(time.Second))
	longest := 0
	for _, item := range h.Items {
		if item.Container != "" {
			longest = max(longest, len(item.CPU))
		}
	}
	long := time.Duration(longest) * every
	if h.End == nil || long <= samples*interval {
		return &past{}
	}
	p := &past{of: map[string]*line{}, column: columns[len(columns)-1]}
	if i := slices.IndexFunc(columns, func(c time.Duration) bool { return long <= samples*c }); i >= 0 {
		p.column = columns[i]
	}
	p.newest = h.End.UnixNano() / int64(p.column)
	for _, item := range h.Items {
		l := &line{}
		for _, series := range []struct {
			of   []*float64
			into *[samples]mean
		}{{item.CPU, &l.cpu}, {item.Memory, &l.memory}} {
			for i, v := range series.of {
				at := h.End.Add(-time.Duration(len(series.of)-1-i) * every)
				back := p.newest - at.UnixNano()/int64(p.column)
				if v != nil && back < samples {
					series.into[samples-1-back].add(*v)
				}
			}
		}
		p.of[item.UID+"/"+item.Container] = l
	}
	return p
}
