package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

func TestDetails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, map[string]string{
		dir + "/two/c/cpu.stat":                                        "usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\nnr_periods 10\nnr_throttled 3\nthrottled_usec 1500\n",
		dir + "/two/c/cpu.max":                                         "50000 100000\n",
		dir + "/two/c/cpu.weight":                                      "100\n",
		dir + "/two/c/memory.current":                                  "1000\n",
		dir + "/two/c/memory.stat":                                     "anon 5\nfile 400\nkernel 20\nfile_mapped 60\ninactive_file 300\npgfault 7\npgmajfault 2\n",
		dir + "/two/c/memory.events":                                   "low 0\nhigh 0\nmax 4\noom 2\noom_kill 1\n",
		dir + "/two/c/memory.peak":                                     "1200\n",
		dir + "/two/c/memory.max":                                      "2000\n",
		dir + "/two/c/pids.current":                                    "9\n",
		dir + "/two/c/pids.max":                                        "max\n",
		dir + "/two/c/io.stat":                                         "8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n8:16 \n",
		dir + "/one/cpuacct/c/cpuacct.usage":                           "2500000000\n",
		dir + "/one/cpuacct/c/cpuacct.usage_user":                      "2000000000\n",
		dir + "/one/cpuacct/c/cpuacct.usage_sys":                       "500000000\n",
		dir + "/one/cpu/c/cpu.stat":                                    "nr_periods 10\nnr_throttled 3\nthrottled_time 1500000\n",
		dir + "/one/cpu/c/cpu.cfs_period_us":                           "100000\n",
		dir + "/one/cpu/c/cpu.cfs_quota_us":                            "50000\n",
		dir + "/one/cpu/c/cpu.shares":                                  "1024\n",
		dir + "/one/memory/c/memory.usage_in_bytes":                    "1000\n",
		dir + "/one/memory/c/memory.stat":                              "total_inactive_file 300\ntotal_rss 5\ntotal_pgfault 7\ntotal_pgmajfault 2\ntotal_cache 400\ntotal_mapped_file 60\n",
		dir + "/one/memory/c/memory.kmem.usage_in_bytes":               "20\n",
		dir + "/one/memory/c/memory.max_usage_in_bytes":                "1200\n",
		dir + "/one/memory/c/memory.limit_in_bytes":                    "2000\n",
		dir + "/one/memory/c/memory.failcnt":                           "4\n",
		dir + "/one/memory/c/memory.oom_control":                       "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
		dir + "/one/pids/c/pids.current":                               "9\n",
		dir + "/one/pids/c/pids.max":                                   "max\n",
		dir + "/one/blkio/c/blkio.throttle.io_service_bytes_recursive": "8:0 Read 4096\n8:0 Write 8192\n8:0 Sync 1\n8:0 Total 12288\nTotal 12288\n",
		dir + "/one/blkio/c/blkio.throttle.io_serviced_recursive":      "8:0 Read 1\n8:0 Write 2\nTotal 3\n",
	})
	want := Details{
		Usage: Usage{CPU: 2500 * time.Millisecond, Memory: 1000, WorkingSet: 700, MemoryLimit: 2000, RSS: 5, PageFaults: 7, MajorPageFaults: 2, Swap: -1, SwapLimit: -1},
		User:  2 * time.Second, System: 500 * time.Millisecond,
		Quota: Quota{Period: 100 * time.Millisecond, Limit: 50 * time.Millisecond, Shares: 1024, LinearShares: 2597, Periods: 10, Throttled: 3, Waited: 1500 * time.Microsecond},
		Cache: 400, MappedFile: 60, Kernel: 20, Peak: 1200, LimitHits: 4, OOMKills: 1, Tasks: 9,
		Devices: []Device{{"8:0", 4096, 8192, 1, 2}},
	}
	mounts := map[string]string{}
	for _, controller := range []string{"cpuacct", "cpu", "memory", "pids", "blkio"} {
		mounts[controller] = filepath.Join(dir, "one", controller)
	}
	for name, tree := range map[string]*Tree{"version 2": {unified: dir + "/two"}, "version 1": {mounts: mounts}} {
		want := want
		if name == "version 1" {
			want.Quota.LinearShares = 0
		}
		if got, err := tree.Details("/c"); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v\nwant %+v", name, got, err, want)
		}
		if _, err := tree.Details("/gone"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s, gone: %v", name, err)
		}
	}
}

// TestDetailsWithoutControllers: what a machine does not count is 0, and a limit that is none too.
func TestDetailsWithoutControllers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, map[string]string{
		dir + "/two/c/cpu.stat": "usage_usec 1\n", dir + "/two/c/memory.current": "1\n", dir + "/two/c/memory.stat": "",
		dir + "/two/c/memory.max": "max\n", dir + "/two/c/cpu.max": "max 100000\n",
		dir + "/one/cpuacct/c/cpuacct.usage": "1000\n", dir + "/one/memory/c/memory.usage_in_bytes": "1\n", dir + "/one/memory/c/memory.stat": "",
		dir + "/one/memory/c/memory.limit_in_bytes": "9223372036854771712\n", dir + "/one/cpu/c/cpu.cfs_quota_us": "-1\n",
	})
	for name, tree := range map[string]*Tree{
		"version 2": {unified: dir + "/two"},
		"version 1": {mounts: map[string]string{"cpuacct": dir + "/one/cpuacct", "memory": dir + "/one/memory", "cpu": dir + "/one/cpu"}},
	} {
		got, err := tree.Details("/c")
		got.Quota.Period = 0
		want := Details{Usage: Usage{CPU: time.Microsecond, Memory: 1, WorkingSet: 1, Swap: -1, SwapLimit: -1}}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	// A file that cannot be read is an error, not a zero.
	if err := os.Mkdir(dir+"/two/c/memory.peak", 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := (&Tree{unified: dir + "/two"}).Details("/c"); err == nil {
		t.Error("no error")
	}
}
