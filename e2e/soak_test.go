package e2e

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// footprint is what a node takes, by what it is: serve's memory, descriptors and goroutines, and what pods leave.
type footprint map[string]float64

// footprint looks at a node that serves.
func (n *node) footprint() footprint {
	n.t.Helper()
	out := footprint{}
	for line := range strings.Lines(n.http("/metrics")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch name {
		case "process_resident_memory_bytes", "go_memstats_heap_inuse_bytes", "process_open_fds", "go_goroutines", `kubelet_running_containers{container_state="exited"}`:
			var number float64
			_, err := fmt.Sscan(value, &number)
			must(n.t, err)
			out[name] = number
		}
	}
	for _, dir := range []string{"root/pods", "root/containerd", "run", "log"} {
		_ = filepath.WalkDir(n.path(dir), func(_ string, e fs.DirEntry, err error) error {
			if err == nil {
				out["files in "+dir]++
				if info, err := e.Info(); err == nil && dir == "root/containerd" {
					if st, ok := info.Sys().(*syscall.Stat_t); ok {
						out["bytes in "+dir] += float64(st.Blocks) * 512
					}
				}
			}
			return nil // what vanishes meanwhile is not there
		})
	}
	return out
}

// TestSoak runs as long as PODRUN_SOAK says: pods come, are edited, crash and go, and what the node takes at
// the same number of pods does not grow.
func TestSoak(t *testing.T) {
	long, err := time.ParseDuration(os.Getenv("PODRUN_SOAK"))
	if err != nil {
		t.Skip("a soak test runs by make soak")
	}
	n := newNode(t)
	const pods = 8
	edit := func(i, revision int) {
		command := fmt.Sprintf("trap 'exit 0' TERM; for i in 1 2 3 4 5 6 7 8 9; do echo revision %d line $i; done; while :; do sleep 0.05; done", revision)
		n.write(fmt.Sprintf("p%d.yaml", i), manifest(fmt.Sprintf("p%d", i), "Always", command))
	}
	settle := func() {
		for i := range pods {
			n.ready(fmt.Sprintf("p%d-n", i))
		}
	}
	for i := range pods {
		edit(i, 0)
	}
	n.serve("--container-log-max-size=1Ki", "--container-log-max-files=2", "--max-container-restart-period=1s")
	settle()
	var first footprint
	begin, round := time.Now(), 0
	for ; time.Since(begin) < long; round++ {
		if first == nil && time.Since(begin) > long/4 {
			settle()
			first = n.footprint()
			t.Logf("after %d rounds: %v", round, first)
		}
		i := rand.IntN(pods)
		switch rand.IntN(3) {
		case 0:
			edit(i, round)
		case 1:
			n.remove(fmt.Sprintf("p%d.yaml", i))
			n.gone(fmt.Sprintf("p%d-n", i))
			edit(i, round)
		case 2:
			// It may just be replaced, and not be there to end.
			n.run("exec", fmt.Sprintf("p%d", i), "--", "kill", "1")
		}
	}
	settle()
	last := n.footprint()
	t.Logf("after %d rounds: %v", round, last)
	for what, now := range last {
		// A quarter more, and some for chance: what leaks does so at every round.
		slack := map[bool]float64{true: 8 << 20, false: 30}[strings.Contains(what, "bytes")]
		if now > first[what]*1.25+slack {
			t.Errorf("%s grew from %.0f to %.0f in %d rounds", what, first[what], now, round)
		}
	}
}
