package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func write(t *testing.T, files map[string]string) {
	t.Helper()
	for path, text := range files {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, map[string]string{
		dir + "/two/pod/c/cpu.stat":                     "usage_usec 2500000\nuser_usec 1\n",
		dir + "/two/pod/c/memory.current":               "1000\n",
		dir + "/two/pod/c/memory.max":                   "2000\n",
		dir + "/two/pod/c/memory.stat":                  "anon 5\ninactive_file 300\npgfault 7\npgmajfault 2\n",
		dir + "/two/pod/c/memory.swap.current":          "40\n",
		dir + "/two/pod/c/memory.swap.max":              "100\n",
		dir + "/two/free/c/cpu.stat":                    "usage_usec 1\n",
		dir + "/two/free/c/memory.current":              "1\n",
		dir + "/two/free/c/memory.max":                  "max\n",
		dir + "/two/free/c/memory.stat":                 "",
		dir + "/two/free/c/memory.swap.current":         "0\n",
		dir + "/two/free/c/memory.swap.max":             "max\n",
		dir + "/one/cpuacct/pod/c/cpuacct.usage":        "2500000000\n",
		dir + "/one/memory/pod/c/memory.usage_in_bytes": "1000\n",
		dir + "/one/memory/pod/c/memory.limit_in_bytes": "2000\n",
		dir + "/one/memory/pod/c/memory.stat": "inactive_file 1\ntotal_inactive_file 300\ntotal_rss 5\ntotal_pgfault 7\ntotal_pgmajfault 2\n" +
			"total_swap 40\nhierarchical_memory_limit 2000\nhierarchical_memsw_limit 2100\n",
		dir + "/one/cpuacct/free/c/cpuacct.usage":        "1000\n",
		dir + "/one/memory/free/c/memory.usage_in_bytes": "1\n",
		dir + "/one/memory/free/c/memory.limit_in_bytes": "9223372036854771712\n",
		dir + "/one/memory/free/c/memory.stat":           "total_swap 0\nhierarchical_memory_limit 9223372036854771712\nhierarchical_memsw_limit 9223372036854771712\n",
	})
	want := Usage{CPU: 2500 * time.Millisecond, Memory: 1000, WorkingSet: 700, MemoryLimit: 2000, RSS: 5, PageFaults: 7, MajorPageFaults: 2, Swap: 40, SwapLimit: 100}
	free := Usage{CPU: time.Microsecond, Memory: 1, WorkingSet: 1, SwapLimit: -1}
	for name, tree := range map[string]*Tree{
		"version 2": {unified: dir + "/two"},
		"version 1": {mounts: map[string]string{"cpuacct": dir + "/one/cpuacct", "memory": dir + "/one/memory"}},
	} {
		if got, err := tree.Usage("/pod/c"); err != nil || got != want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if got, err := tree.Usage("/free/c"); err != nil || got != free {
			t.Errorf("%s, without limits: %+v, %v", name, got, err)
		}
		if _, err := tree.Usage("/pod/gone"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s, gone: %v", name, err)
		}
	}
	if _, err := (&Tree{mounts: map[string]string{"memory": dir}}).Usage("/pod/c"); !errors.Is(err, ErrNoUsage) {
		t.Errorf("no accounting: %v", err)
	}
}

func TestUsageWhereSwapIsNotCounted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, map[string]string{
		dir + "/two/c/cpu.stat": "usage_usec 1\n", dir + "/two/c/memory.current": "1\n", dir + "/two/c/memory.stat": "",
		dir + "/one/cpuacct/c/cpuacct.usage": "1000\n", dir + "/one/memory/c/memory.usage_in_bytes": "1\n", dir + "/one/memory/c/memory.stat": "",
	})
	for name, tree := range map[string]*Tree{
		"version 2": {unified: dir + "/two"},
		"version 1": {mounts: map[string]string{"cpuacct": dir + "/one/cpuacct", "memory": dir + "/one/memory"}},
	} {
		if got, err := tree.Usage("/c"); err != nil || got.Swap != -1 || got.SwapLimit != -1 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestProcesses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, map[string]string{
		dir + "/cpuacct/pod/c/cgroup.procs":             "12\n13\n",
		dir + "/cpuacct/pod/c/init.scope/cgroup.procs":  "14\n",
		dir + "/cpuacct/pod/c/cpuacct.usage":            "1\n",
		dir + "/cpuacct/pod/other/cgroup.procs":         "15\n",
		dir + "/cpuacct/pod/empty/cgroup.procs":         "",
		dir + "/cpuacct/pod/c/system.slice/unreachable": "",
	})
	for name, tree := range map[string]*Tree{"version 2": {unified: dir + "/cpuacct"}, "version 1": {mounts: map[string]string{"cpuacct": dir + "/cpuacct"}}} {
		if got, err := tree.Processes("/pod/c"); err != nil || !slices.Equal(got, []int{12, 13, 14}) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if got, err := tree.Processes("/pod/empty"); err != nil || len(got) != 0 {
			t.Errorf("%s, empty: %v, %v", name, got, err)
		}
		if _, err := tree.Processes("/pod/gone"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s, gone: %v", name, err)
		}
	}
	if _, err := (&Tree{mounts: map[string]string{}}).Processes("/pod"); !errors.Is(err, ErrNoUsage) {
		t.Errorf("no accounting: %v", err)
	}
}
