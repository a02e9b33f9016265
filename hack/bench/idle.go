package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/hack/bench/sections"
	"podrun.io/podrun/internal/test/usage"
)

const (
	// idleRest is how long the pods are idle before they are measured: by then, both sides have
	// returned what only the starts needed, and podrun lists at its longest period.
	idleRest = 90 * time.Second
	// idleFor is how long their CPU time is measured.
	idleFor = time.Minute
	// wantedIdlePSS is in MiB, for all processes; wantedShim for one shim, in MB. wantedIdleCPU is per
	// minute.
	wantedIdlePSS = 150
	wantedShim    = 2
	wantedIdleCPU = 150 * time.Millisecond
)

// load is what the processes of one side cost. A side's processes are serve, containerd and the shims,
// not those of its containers.
type load struct {
	processes, shims int
	pss, shimPSS     float64       // MB
	cpu, shimCPU     time.Duration // since the processes' starts, or between two loads
	list, pod        time.Duration // cpu while the page of all pods is open, and while that of a pod is
}

// measureIdle compares podrun on its own containerd with a stock containerd and its shims, each with
// the same number of idle containers, one after the other.
func measureIdle(ctx context.Context, o options, on site, m *marks) error {
	floor, err := idleFloor(ctx, o, on, m)
	if err != nil {
		return fmt.Errorf("floor: %w", err)
	}
	podrun, err := idlePodrun(ctx, o, on, m, "own")
	if err != nil {
		return fmt.Errorf("podrun: %w", err)
	}
	on.plugins = true
	plugged, err := idlePodrun(ctx, o, on, m, "plugged")
	if err != nil {
		return fmt.Errorf("podrun --plugins: %w", err)
	}
	text := fmt.Sprintf("%d idle pods", o.pods)
	var table bytes.Buffer
	fmt.Fprintf(&table, "| %s | containerd alone | podrun | ratio | wanted |\n", text)
	fmt.Fprintln(&table, "| --- | --- | --- | --- | --- |")
	number := func(name string, floor, podrun float64, wanted string) {
		fmt.Fprintf(&table, "| %s | %.1f | %.1f | **%.2f** | %s |\n", name, floor, podrun, podrun/floor, wanted)
	}
	number("PSS of all processes, MiB", floor.pss*1e6/(1<<20), podrun.pss*1e6/(1<<20), fmt.Sprintf("≤ %d", wantedIdlePSS))
	number("the same with `--plugins`", floor.pss*1e6/(1<<20), plugged.pss*1e6/(1<<20), "")
	number("PSS of a shim, MB", floor.shimPSS/float64(floor.shims), podrun.shimPSS/float64(podrun.shims),
		fmt.Sprintf("≤ %d", wantedShim))
	perMinute := func(d time.Duration) float64 { return d.Seconds() * 1e3 * float64(time.Minute) / float64(idleFor) }
	number("CPU of all processes, ms/min", perMinute(floor.cpu), perMinute(podrun.cpu), "≤ "+ms(wantedIdleCPU))
	number("the same with `--plugins`", perMinute(floor.cpu), perMinute(plugged.cpu), "")
	number("of that, shims without `--plugins`", perMinute(floor.shimCPU), perMinute(podrun.shimCPU), "")
	number("CPU of all while the page of all pods is open", perMinute(floor.cpu), perMinute(podrun.list), "≤ "+ms(wantedPageCPU))
	number("CPU of all while the page of a pod is open", perMinute(floor.cpu), perMinute(podrun.pod), "≤ "+ms(wantedPageCPU))
	return publish(ctx, o, on.client, table.String(), func(machine string) error {
		return sections.Write(o.markdown, sections.Idle, fmt.Sprintf(idleSection, table.String(), machine))
	})
}

func idleFloor(ctx context.Context, o options, on site, m *marks) (l load, err error) {
	f, err := newFloor(ctx, on.client, on.archive, on.dir, m)
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, f.remove(context.WithoutCancel(ctx), "idle")) }()
	if _, err := f.many(ctx, "idle", o.pods, floorWorkers); err != nil {
		return l, err
	}
	return rest(ctx, on.dir, o.pods)
}

func idlePodrun(ctx context.Context, o options, on site, m *marks, name string) (l load, err error) {
	on.dir = filepath.Join(on.dir, name)
	on.address = "embedded"
	if err := os.Mkdir(on.dir, 0o755); err != nil {
		return l, err
	}
	n, err := newNode(ctx, o.podrun, on, m)
	if err != nil {
		return l, err
	}
	defer func() {
		ctx := context.WithoutCancel(ctx)
		err = errors.Join(err, n.Close(ctx), m.clear("idle"), gone(ctx, on.dir))
	}()
	if _, err := n.many(ctx, "idle", o.pods); err != nil {
		return l, err
	}
	if l, err = rest(ctx, on.dir, o.pods); err != nil || on.plugins {
		return l, err
	}
	if l.list, err = whileOpen(ctx, on.dir, "/live"); err == nil {
		l.pod, err = whileOpen(ctx, on.dir, "/pod/default/idle-0-bench/live")
	}
	return l, err
}

// rest measures the processes of a side while its containers are idle.
func rest(ctx context.Context, dir string, pods int) (l load, err error) {
	if err := sleep(ctx, idleRest); err != nil {
		return l, err
	}
	before, err := loadOf(dir)
	if err != nil {
		return l, err
	}
	if err := sleep(ctx, idleFor); err != nil {
		return l, err
	}
	if l, err = loadOf(dir); err != nil {
		return l, err
	}
	if l.shims != pods || l.processes != before.processes {
		return l, fmt.Errorf("%d processes before and %d after, %d of them shims", before.processes, l.processes, l.shims)
	}
	l.cpu -= before.cpu
	l.shimCPU -= before.shimCPU
	return l, nil
}

// gone waits until no process of the side is left.
func gone(ctx context.Context, dir string) error {
	for range 300 {
		if l, err := loadOf(dir); err == nil && l.processes == 0 {
			return nil
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("processes of %s are left", dir)
}

// loadOf returns the load of all processes that have a path below dir in their arguments.
func loadOf(dir string) (l load, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return l, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), dir+"/") {
			continue // it has ended, or is another program
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return l, err
		}
		memory, err := usage.PSS(pid)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // it has just ended
		}
		if err != nil {
			return l, err
		}
		used, err := usage.CPU(pid)
		if err != nil {
			return l, err
		}
		l.processes++
		l.pss += memory
		l.cpu += used
		program, _, _ := strings.Cut(string(text), "\x00")
		if strings.HasPrefix(filepath.Base(program), "containerd-shim-") {
			l.shims++
			l.shimPSS += memory
			l.shimCPU += used
		}
	}
	return l, nil
}

//go:embed idle.md
var idleSection string

//go:embed scale.md
var scaleSection string

//go:embed probes.md
var probesSection string

// writeRows writes rows that tests have printed as a section of the page.
func writeRows(o options) error {
	rows, err := os.ReadFile(o.rows)
	if err != nil {
		return err
	}
	heading, section := sections.Scale, scaleSection
	if o.probes {
		heading, section = sections.Probes, probesSection
	}
	return sections.Write(o.markdown, heading, fmt.Sprintf(section, rows))
}
