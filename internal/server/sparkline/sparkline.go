// Package sparkline draws what the machine and its pods have used in the last hour, as small lines for the pages. It
// keeps no samples: package stats/history has them.
//
// Begin reading at Courses.Now.
package sparkline

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"podrun.io/podrun/internal/stats/history"
)

// The size of a sparkline, in its own units. Each point is the highest of some samples.
const (
	points      = 60
	pointWidth  = 2
	sparkHeight = 20
	perPoint    = history.Kept / points
)

// Course is what something has used in the last hour, as a sparkline shows it; negative: not known.
type Course struct{ cpu, memory [points]float64 }

// add adds what a container has used to what the others have.
func (c *Course) add(cpu, memory []float64) {
	sum := func(into *[points]float64, samples []float64) {
		for i := range points {
			highest := -1.0
			for n := range perPoint { // the newest sample is the last
				at := len(samples) - (points-i)*perPoint + n
				if at >= 0 {
					highest = max(highest, samples[at])
				}
			}
			if highest >= 0 {
				into[i] = max(into[i], 0) + highest
			}
		}
	}
	sum(&c.cpu, cpu)
	sum(&c.memory, memory)
}

func newCourse() *Course {
	c := &Course{}
	for i := range points {
		c.cpu[i], c.memory[i] = -1, -1
	}
	return c
}

// Courses are the courses of the machine (""), of pods by UID, and of containers by UID/NAME. They change when there is
// another sample.
type Courses struct {
	History *history.History

	mu sync.Mutex
	at time.Time
	of map[string]*Course
}

// Now returns the courses. Who calls it looks at them.
func (c *Courses) Now() map[string]*Course {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.History.Watch(); c.of != nil && at.Equal(c.at) {
		return c.of
	}
	var all []history.Series
	all, c.at = c.History.Samples(func(history.Of) bool { return true })
	c.of = map[string]*Course{}
	for _, s := range all {
		keys := []string{s.UID}
		if s.UID != "" {
			keys = append(keys, s.UID+"/"+s.Container)
		}
		for _, key := range keys {
			if c.of[key] == nil {
				c.of[key] = newCourse()
			}
			c.of[key].add(s.CPU, s.Memory)
		}
	}
	return c.of
}

// Line is a course as a page draws it: the paths of an SVG image, and its text. Without a sample it draws nothing.
type Line struct {
	Line, Limit, Label string
}

// CPU returns the line of the CPU of a course, which may be nil. limit is in thousandths of a processor, 0 if there is
// none.
func (c *Course) CPU(limit float64) Line {
	if c == nil {
		return Line{}
	}
	return lineOf("CPU", c.cpu[:], limit, func(v float64) string { return strconv.Itoa(int(v)) + "m" })
}

// Memory returns the line of the memory of a course, which may be nil. limit is in bytes, 0 if there is none.
func (c *Course) Memory(limit float64) Line {
	if c == nil {
		return Line{}
	}
	return lineOf("Memory", c.memory[:], limit, func(v float64) string { return Bytes(uint64(v)) })
}

// Of returns the line of values of the last hour, of which there are at most 60, the newest last; negative: not known.
func Of(what string, values []float64, format func(float64) string) Line {
	return lineOf(what, values[max(0, len(values)-points):], 0, format)
}

func lineOf(what string, values []float64, limit float64, format func(float64) string) (s Line) {
	highest := -1.0
	for _, v := range values {
		highest = max(highest, v)
	}
	if highest < 0 {
		return s
	}
	top := max(highest, limit, 1)
	y := func(v float64) int { return sparkHeight - 1 - int(v/top*(sparkHeight-2)+0.5) }
	var line []byte
	drawn := false
	for i, v := range values {
		if v < 0 {
			drawn = false
			continue
		}
		command := byte('L')
		if !drawn {
			command = 'M'
		}
		line = append(line, command)
		line = strconv.AppendInt(line, int64(i*pointWidth), 10)
		line = append(line, ' ')
		line = strconv.AppendInt(line, int64(y(v)), 10)
		if !drawn { // a point alone is seen too
			line = append(line, 'h', '1')
		}
		drawn = true
	}
	s.Line, s.Label = string(line), what+" in the last hour: at most "+format(highest)
	if limit > 0 {
		s.Limit = "M0 " + strconv.Itoa(y(limit)) + "H" + strconv.Itoa(points*pointWidth)
		s.Label += ", limit " + format(limit)
	}
	return s
}

// Rate returns bytes a second as the pages show them.
func Rate(perSecond float64) string {
	switch {
	case perSecond >= 1<<20:
		return fmt.Sprintf("%.1fMi/s", perSecond/(1<<20))
	case perSecond >= 1<<10:
		return fmt.Sprintf("%.1fKi/s", perSecond/(1<<10))
	}
	return fmt.Sprintf("%.0fB/s", perSecond)
}

// Bytes returns an amount of memory as the pages show it.
func Bytes(n uint64) string {
	if n >= 10<<30 {
		return fmt.Sprintf("%dGi", n>>30)
	}
	return fmt.Sprintf("%dMi", n>>20)
}
