package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"podrun.io/podrun/internal/test/usage"
)

// TestScale measures nodes with as many pods as PODRUN_SCALE says, and prints a row of a table for each. It
// fails if something does not work, never because of a time. With -parallel 1 they do not disturb each other.
func TestScale(t *testing.T) {
	if os.Getenv("PODRUN_SCALE") == "" {
		t.Skip("the scale is measured by make bench")
	}
	t.Log("\n| pods | start, ms a pod | restart, ms | memory, MB a pod | serve, MB | disk, kB a pod | CPU, ms/min a pod " +
		"| `get pods`, ms | `/pods`, ms | `/metrics`, ms | `/metrics/cadvisor`, ms | page, ms | `down`, ms a pod |\n" +
		strings.Repeat("| --- ", 13) + "|")
	for _, number := range strings.Fields(os.Getenv("PODRUN_SCALE")) {
		count, err := strconv.Atoi(number)
		must(t, err)
		t.Run(number, func(t *testing.T) { t.Log("\n" + scale(t, count)) })
	}
}

// scale measures a node with so many pods, and returns a row of the table.
func scale(t *testing.T, count int) string {
	n := newNode(t)
	marks := n.path("marks")
	must(t, os.Mkdir(marks, 0o777))
	must(t, os.Chmod(marks, 0o777))
	empty := n.disk()
	n.serve()
	n.await("serve serves", func() error { _, err := os.Stat(n.path("run", "podrun.sock")); return err })
	var text strings.Builder
	for i := range count {
		fmt.Fprintf(&text, `apiVersion: v1
kind: Pod
metadata: {name: p%d}
spec:
  hostNetwork: true
  containers:
  - {name: c, image: %q, imagePullPolicy: Never, command: [sh, -c, "echo run >> /marks/p%d; exec sleep 1000000"], volumeMounts: [{name: marks, mountPath: /marks}]}
  volumes: [{name: marks, hostPath: {path: %s}}]
---
`, i, box, i, marks)
	}
	begin := time.Now()
	n.write("all.yaml", text.String())
	n.await("all pods run", func() error {
		files, err := os.ReadDir(marks)
		if err == nil && len(files) != count {
			err = fmt.Errorf("%d of %d", len(files), count)
		}
		return err
	})
	start := time.Since(begin)
	n.ok("wait", "--for=condition=Ready", "pods", "--all", "--timeout=5m")
	time.Sleep(20 * time.Second) // what only the starts needed is returned by then
	memory, own, before := n.used()
	time.Sleep(30 * time.Second)
	_, _, after := n.used()
	disk := n.disk() - empty

	took := func(do func()) time.Duration {
		var all []time.Duration
		for range 5 {
			begin := time.Now()
			do()
			all = append(all, time.Since(begin))
		}
		slices.Sort(all)
		return all[2]
	}
	row := fmt.Sprintf("| %d | %.1f | %.1f | %.2f | %.1f | %.1f | %.1f", count, ms(start)/float64(count), ms(n.restart(marks)),
		memory/float64(count), own, disk/1e3/float64(count), ms(after-before)*2/float64(count))
	row += fmt.Sprintf(" | %.1f", ms(took(func() { n.ok("get", "pods") })))
	for _, path := range []string{"/pods", "/metrics", "/metrics/cadvisor", "/"} {
		row += fmt.Sprintf(" | %.1f", ms(took(func() { n.http(path) })))
	}
	n.end(syscall.SIGTERM)
	begin = time.Now()
	n.ok("down", "--all", "--grace-period=0")
	return row + fmt.Sprintf(" | %.1f |", ms(time.Since(begin))/float64(count))
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// restart kills the process of the pod p0 and returns after how long its next one runs.
func (n *node) restart(marks string) time.Duration {
	n.t.Helper()
	file := filepath.Join(marks, "p0")
	before, err := os.Stat(file)
	must(n.t, err)
	pid := n.mainPID(n.pod("p0-n"), "c")
	begin := time.Now()
	must(n.t, syscall.Kill(pid, syscall.SIGKILL))
	for time.Since(begin) < patience {
		if now, err := os.Stat(file); err == nil && now.Size() > before.Size() {
			return time.Since(begin)
		}
		time.Sleep(100 * time.Microsecond)
	}
	n.t.Fatal("the pod was not restarted")
	return 0
}

// used returns the memory of all processes of the node but the containers', that of serve, both in MB, and
// the CPU time of all of them.
func (n *node) used() (memory, own float64, cpu time.Duration) {
	n.t.Helper()
	for _, pid := range n.processes() {
		pss, err := usage.PSS(pid)
		must(n.t, err)
		memory += pss
		if pid == n.serving.Process.Pid {
			own = pss
		}
		used, err := usage.CPU(pid)
		must(n.t, err)
		cpu += used
	}
	return memory, own, cpu
}

// disk returns what the node's files take, in bytes.
func (n *node) disk() (bytes float64) {
	for _, dir := range []string{"root", "log"} {
		_ = filepath.WalkDir(n.path(dir), func(_ string, e fs.DirEntry, err error) error {
			if err != nil {
				return nil
			}
			if info, err := e.Info(); err == nil {
				if st, ok := info.Sys().(*syscall.Stat_t); ok {
					bytes += float64(st.Blocks) * 512
				}
			}
			return nil
		})
	}
	return bytes
}
