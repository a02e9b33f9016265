package top

import (
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"podrun.io/podrun/internal/test"
)

// hourOf returns what serve has of a container, which ends at a time: so many samples of 10 s, each higher by one, and
// none for the first.
func hourOf(end time.Time, count int) (h hour) {
	h.Interval, h.End = 10, &end
	h.Items = slices.Grow(h.Items, 2)[:2] // the first is the machine's
	h.Items[0].CPU = make([]*float64, 360)
	h.Items[1].UID, h.Items[1].Container = "a", "main"
	for i := range count {
		cpu, memory := new(float64(i)), new(float64(1000))
		if i == 0 {
			cpu = nil
		}
		h.Items[1].CPU, h.Items[1].Memory = append(h.Items[1].CPU, cpu), append(h.Items[1].Memory, memory)
	}
	return h
}

// TestHour: lines begin with what serve has, and go on with what is measured.
func TestHour(t *testing.T) {
	end := time.Unix(1_800_000_000, 0) // where a column of two minutes begins
	for name, c := range map[string]struct {
		count     int
		interval  time.Duration
		column    time.Duration
		about     string
		newest    float64
		at, first int // the first column that has a value
	}{
		"nothing":                    {0, time.Second, 0, "each measured over 1s, the last 30 times", -1, -1, 0},
		"no more than watch has":     {3, time.Second, 0, "each measured over 1s, the last 30 times", -1, -1, 0},
		"a little":                   {4, time.Second, 10 * time.Second, "recent: the last 5m, each character 10s", 3, 27, 1},
		"some minutes":               {60, time.Second, 30 * time.Second, "recent: the last 15m, each character 30s", 59, 9, 1},
		"half an hour":               {180, time.Second, time.Minute, "recent: the last 30m, each character 60s", 179, 0, 7},
		"an hour":                    {360, time.Second, 2 * time.Minute, "recent: the last 60m, each character 2m", 359, 0, 16},
		"an hour, and seldom looked": {360, 3 * time.Minute, 0, "each measured over 3m0s, the last 30 times", -1, -1, 0},
	} {
		p := hourOf(end, c.count).past(c.interval)
		if p.column != c.column || !strings.Contains(p.about(c.interval, fit{columns: samples}), c.about) {
			t.Errorf("%s: column %s, %q", name, p.column, p.about(c.interval, fit{columns: samples}))
			continue
		}
		if c.at < 0 {
			continue
		}
		cpu, memory := values(p.of["a/main"].cpu), values(p.of["a/main"].memory)
		at := slices.IndexFunc(cpu, func(v float64) bool { return v >= 0 })
		if cpu[samples-1] != c.newest || at != c.at || int(cpu[at]) != c.first || memory[samples-1] != 1000 {
			t.Errorf("%s: from %d: %v\n%v", name, at, cpu, memory)
		}
		// Time goes on by a column, in which there are two measurements.
		now := end.Add(c.column)
		p.remember([]Usage{usageOf("a", "main", 100, 0)}, now)
		p.remember([]Usage{usageOf("a", "main", 200, 0)}, now.Add(time.Second))
		if cpu := values(p.of["a/main"].cpu); cpu[samples-1] != 150 || cpu[samples-2] != c.newest {
			t.Errorf("%s, then: %v", name, cpu)
		}
	}
	p := hourOf(end, 360).past(time.Second)
	p.remember([]Usage{usageOf("a", "main", 100, 0)}, end.Add(-3*time.Hour)) // the clock was set back
	if cpu := values(p.of["a/main"].cpu); cpu[samples-1] != 100 || cpu[samples-2] != -1 {
		t.Errorf("after the clock was set back: %v", cpu)
	}
}

// TestBefore: without a serve, or with one that has no history, the lines begin with nothing.
func TestBefore(t *testing.T) {
	o := Options{Socket: filepath.Join(t.TempDir(), "s"), Interval: time.Second}
	if p := before(t.Context(), o); p.column != 0 || len(p.of) != 0 {
		t.Errorf("without a serve: %+v", p)
	}
	l, err := net.Listen("unix", o.Socket)
	test.Must(t, err)
	answer := `{"intervalSeconds": 100, "end": "2026-01-02T03:04:05Z", "items": [
		{"uid": "u", "container": "c", "cpuMillicores": [1, null], "memoryBytes": [2, 3]}]}`
	served := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/history" {
			_, _ = io.WriteString(w, answer)
		}
	})}
	go served.Serve(l)
	t.Cleanup(func() { served.Close() })
	p := before(t.Context(), o)
	if l := p.of["u/c"]; l == nil || p.column != 10*time.Second {
		t.Fatalf("%+v", p)
	} else if cpu, memory := values(l.cpu), values(l.memory); cpu[samples-11] != 1 || cpu[samples-1] != -1 || memory[samples-1] != 3 {
		t.Errorf("%v, %v", cpu, memory)
	}
	for _, answer = range []string{"{}", strings.Replace(answer, `"end"`, `"start"`, 1)} {
		if p := before(t.Context(), o); p.column != 0 || len(p.of) != 0 {
			t.Errorf("of a serve that answers %s: %+v", answer, p)
		}
	}
}
