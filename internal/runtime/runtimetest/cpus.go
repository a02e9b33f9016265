package runtimetest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/runtime"
)

// testCPUs starts an instance on one CPU and puts it on others.
func testCPUs(t *testing.T, s subject) {
	var set unix.CPUSet
	must(t, unix.SchedGetaffinity(0, &set))
	var all []string
	for id := 0; len(all) < min(set.Count(), 2); id++ {
		if set.IsSet(id) {
			all = append(all, fmt.Sprint(id))
		}
	}
	first, both := all[0], strings.Join(all, ",")
	p := s.newPod("cpus-node", "uid-cpus", "main")
	start := s.ready(t, p)
	start.CPUs = first
	c := s.start(t, start)
	expect := func(want string) {
		t.Helper()
		if got := s.instance(t, start); got.CPUs != want || got.ID != c.ID || got.PID != c.PID {
			t.Errorf("%+v, want CPUs %s", got, want)
		}
		if !s.Runs {
			return
		}
		var out bytes.Buffer
		code, err := s.Exec(t.Context(), c.ID,
			[]string{"grep", "Cpus_allowed_list", "/proc/1/status"}, runtime.ExecIO{Stdout: &out})
		if fields := strings.Fields(out.String()); err != nil || code != 0 || len(fields) != 2 ||
			strings.ReplaceAll(fields[1], "-", ",") != want { // two CPUs in a row are a range
			t.Errorf("%q, %d, %v, want %s", out.String(), code, err, want)
		}
	}
	expect(first)
	for _, cpus := range []string{both, first, first, both} {
		must(t, s.ResizeContainer(t.Context(), c.ID, p, start.Container, cpus))
		expect(cpus)
	}
	must(t, s.ResizeContainer(t.Context(), c.ID, p, start.Container, "")) // stays where it is
	expect(both)
	must(t, s.ResizeContainer(t.Context(), "missing", p, start.Container, first))
}
