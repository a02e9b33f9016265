package runtimetest

import (
	"bytes"
	"cmp"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// limits prints a container's memory limit, CPU quota and CPU weight from its cgroup, of either
// version.
const limits = `cd /sys/fs/cgroup; cat memory/memory.limit_in_bytes cpu/cpu.cfs_quota_us cpu/cpu.shares 2>/dev/null ` +
	`|| cat memory.max cpu.max cpu.weight`

// lost prints what a resize must not change but did, on version 2: no swap, if the kernel accounts it, and that
// all processes of the container are killed together.
const lost = `cd /sys/fs/cgroup; [ -d memory ] || grep -v 1 memory.oom.group; ` +
	`[ ! -f memory.swap.max ] || grep -vx 0 memory.swap.max; true`

// testResize makes a container larger, then smaller, then without a limit, in a pod with another one.
func testResize(t *testing.T, s subject) {
	p := s.newPod("resize-node", "uid-resize", "main", "other")
	main := &p.Spec.Containers[0]
	size := func(memory, cpu string) {
		main.Resources = v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")},
			Limits:   v1.ResourceList{},
		}
		if memory != "" {
			main.Resources.Limits[v1.ResourceMemory] = resource.MustParse(memory)
		}
		if cpu != "" {
			main.Resources.Limits[v1.ResourceCPU] = resource.MustParse(cpu)
		}
	}
	p.Spec.Containers[1].Resources.Limits = v1.ResourceList{
		v1.ResourceMemory: resource.MustParse("32Mi"),
		v1.ResourceCPU:    resource.MustParse("100m"),
	}
	size("64Mi", "500m")
	start := s.ready(t, p)
	c := s.start(t, start)
	second := start
	second.Container = &p.Spec.Containers[1]
	s.start(t, second)
	for _, tt := range []struct{ memory, cpu, quota string }{
		{"64Mi", "500m", "50000"},
		{"96Mi", "2", "200000"},
		{"48Mi", "200m", "20000"},
		{"", "", "-1"},
		{"64Mi", "1", "100000"},
	} {
		size(tt.memory, tt.cpu)
		for range 2 {
			must(t, s.ResizeContainer(t.Context(), c.ID, p, main, ""))
		}
		if got := s.instance(t, start); got.Resources != pod.ResourcesOf(p, main) ||
			got.ID != c.ID || got.PID != c.PID {
			t.Errorf("resized: %+v", got)
		}
		if !s.Runs {
			continue
		}
		var out bytes.Buffer
		code, err := s.Exec(t.Context(), c.ID, []string{"sh", "-c", limits}, runtime.ExecIO{Stdout: &out})
		got := strings.Fields(out.String())
		if err != nil || code != 0 || len(got) < 3 {
			t.Fatal(code, err, out.String())
		}
		memory := resource.MustParse(cmp.Or(tt.memory, "0"))
		if limited := got[0] == memory.AsDec().String(); limited != (tt.memory != "") ||
			got[1] != tt.quota && (tt.quota != "-1" || got[1] != "max") {
			t.Errorf("memory %s and CPU %s: %q", tt.memory, tt.cpu, got)
		}
		if got := s.output(t, c.ID, lost); got != "" {
			t.Errorf("memory %s and CPU %s: %s", tt.memory, tt.cpu, got)
		}
	}
	if s.Runs {
		// A limit that the kernel could only enforce by killing processes is not set.
		if code, err := s.Exec(t.Context(), c.ID,
			[]string{"dd", "if=/dev/zero", "of=/dev/shm/full", "bs=1M", "count=32"}, runtime.ExecIO{},
		); err != nil || code != 0 {
			t.Fatal(code, err)
		}
		had := pod.ResourcesOf(p, main)
		size("16Mi", "1")
		err := s.ResizeContainer(t.Context(), c.ID, p, main, "")
		if got := s.instance(t, start); err == nil || got.Resources != had ||
			got.PID != c.PID || got.State != pod.Running {
			t.Errorf("a limit below what is used: %v, %+v", err, got)
		}
	}
	must(t, s.SignalContainer(t.Context(), c.ID, "KILL"))
	s.ended(t, start)
	must(t, s.ResizeContainer(t.Context(), c.ID, p, main, ""))
	must(t, s.ResizeContainer(t.Context(), "missing", p, main, ""))
	s.remove(t, p)
}

// bound prints a container's memory limit and its swap limit from its cgroup, of either version; on
// version 1 the swap limit includes memory. If the kernel does not account swap, it prints one
// line.
const bound = `cd /sys/fs/cgroup; ` +
	`if [ -d memory ]; then cat memory/memory.limit_in_bytes memory/memory.memsw.limit_in_bytes; ` +
	`else cat memory.max memory.swap.max; fi 2>/dev/null || true`

// testMemory checks that a container cannot exceed its memory limit, not even by using swap.
func testMemory(t *testing.T, s subject) {
	if !s.Runs {
		t.Skip("commands do not run in this runtime")
	}
	p := s.newPod("memory-node", "uid-memory", "main", "greedy")
	for i := range p.Spec.Containers {
		p.Spec.Containers[i].Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("24Mi")}
	}
	p.Spec.Containers[1].Command = []string{"dd", "if=/dev/zero", "of=/dev/shm/full", "bs=1M", "count=60"}
	start := s.ready(t, p)
	c := s.start(t, start)
	held := func(want string) {
		t.Helper()
		got := strings.Fields(s.output(t, c.ID, bound))
		if len(got) == 0 || got[0] != want || len(got) == 2 && got[1] != want && got[1] != "0" {
			t.Errorf("limits %q, want %s and no swap", got, want)
		}
	}
	held("25165824")
	for size, want := range map[string]string{"48Mi": "50331648", "16Mi": "16777216"} { // in any order
		p.Spec.Containers[0].Resources.Limits[v1.ResourceMemory] = resource.MustParse(size)
		must(t, s.ResizeContainer(t.Context(), c.ID, p, start.Container, ""))
		held(want)
	}
	start.Container = &p.Spec.Containers[1]
	must(t, s.StartContainer(t.Context(), start))
	if got := s.ended(t, start); got.ExitCode != 137 || got.Reason != "OOMKilled" {
		t.Errorf("beyond its limit: %+v", got)
	}
	if got := s.inspect(t, p); len(got.Containers) != 2 || !got.Sandboxes[0].Ready {
		t.Errorf("%+v", got)
	}
	s.remove(t, p)
}
