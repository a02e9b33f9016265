package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Pressure is how long processes have waited for resources. What the kernel does not say is nil.
type Pressure struct{ CPU, Memory, IO *Stalls }

// Stalls are the times in which some processes waited for a resource, or all of them at once.
type Stalls struct{ Some, Full Stall }

// Stall is a time of waiting.
type Stall struct {
	// Total is the time since the cgroup was created, or the machine booted.
	Total time.Duration
	// Avg10, Avg60 and Avg300 are the percentages of the last 10, 60 and 300 seconds.
	Avg10, Avg60, Avg300 float64
}

// Pressure returns the pressure on the cgroup at path, including its descendants. Only cgroup version 2 has it, and
// only if the kernel was built and booted with it.
func (t *Tree) Pressure(path string) Pressure {
	if t.unified == "" {
		return Pressure{}
	}
	dir := filepath.Join(t.unified, path)
	return pressure(func(resource string) string { return filepath.Join(dir, resource+".pressure") })
}

// MachinePressure returns the pressure on the machine.
func MachinePressure() Pressure {
	return pressure(func(resource string) string { return "/proc/pressure/" + resource })
}

func pressure(file func(resource string) string) (p Pressure) {
	for resource, to := range map[string]**Stalls{"cpu": &p.CPU, "memory": &p.Memory, "io": &p.IO} {
		if text, err := os.ReadFile(file(resource)); err == nil {
			*to = parseStalls(string(text))
		}
	}
	return p
}

// parseStalls parses lines such as "some avg10=0.00 avg60=0.12 avg300=0.03 total=5678", with microseconds; nil if there
// are none.
func parseStalls(text string) *Stalls {
	var out Stalls
	of := map[string]*Stall{"some": &out.Some, "full": &out.Full}
	lines := 0
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || of[fields[0]] == nil {
			continue
		}
		lines++
		to := of[fields[0]]
		for _, field := range fields[1:] {
			key, value, _ := strings.Cut(field, "=")
			switch n, _ := strconv.ParseFloat(value, 64); key {
			case "avg10":
				to.Avg10 = n
			case "avg60":
				to.Avg60 = n
			case "avg300":
				to.Avg300 = n
			case "total":
				us, _ := strconv.ParseInt(value, 10, 64) // more digits than a float64 has
				to.Total = time.Duration(us) * time.Microsecond
			}
		}
	}
	if lines == 0 {
		return nil
	}
	return &out
}
