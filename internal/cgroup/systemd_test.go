package cgroup

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestSliceLimits(t *testing.T) {
	t.Parallel()
	cpu := func(shares uint64, quota int64) *specs.LinuxCPU {
		return &specs.LinuxCPU{Shares: &shares, Quota: &quota, Period: new(uint64(100_000))}
	}
	memory := func(n int64) *specs.LinuxMemory { return &specs.LinuxMemory{Limit: &n} }
	const none = uint64(math.MaxUint64)
	for _, c := range []struct {
		name    string
		unified bool
		of      specs.LinuxResources
		want    string
	}{
		{"nothing", true, specs.LinuxResources{}, ""},
		{"version 2", true, specs.LinuxResources{CPU: cpu(1024, 150_000), Memory: memory(1 << 20), Pids: &specs.LinuxPids{Limit: new(int64(7))}},
			"CPUWeight=100 CPUQuotaPerSecUSec=1500000 MemoryMax=1048576 TasksMax=7"},
		{"version 1", false, specs.LinuxResources{CPU: cpu(1024, 150_000), Memory: memory(1 << 20), Pids: &specs.LinuxPids{Limit: new(int64(7))}},
			"CPUShares=1024 CPUQuotaPerSecUSec=1500000 MemoryLimit=1048576 TasksMax=7"},
		{"part of a percent", true, specs.LinuxResources{CPU: cpu(2, 12_345)}, "CPUWeight=1 CPUQuotaPerSecUSec=130000"},
		{"no limits", true, specs.LinuxResources{CPU: cpu(2, -1), Memory: memory(math.MaxInt64), Pids: &specs.LinuxPids{Limit: new(int64(-1))}},
			fmt.Sprintf("CPUWeight=1 CPUQuotaPerSecUSec=%d MemoryMax=%d TasksMax=%d", none, none, none)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, p := range sliceLimits(&c.of, c.unified) {
				got = append(got, fmt.Sprintf("%s=%v", p.Name, p.Value.Value()))
			}
			if got := strings.Join(got, " "); got != c.want {
				t.Errorf("got %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestFirst(t *testing.T) {
	t.Parallel()
	read := func(path string) (Usage, error) {
		if path == "b" {
			return Usage{Memory: 1}, nil
		}
		return (&Tree{unified: t.TempDir()}).Usage(path)
	}
	if path, u, err := First(read, []string{"a", "b", "c"}); path != "b" || u.Memory != 1 || err != nil {
		t.Errorf("%s %v %v", path, u, err)
	}
	if _, _, err := First(read, []string{"a", "c"}); err == nil {
		t.Error("none is there")
	}
}
