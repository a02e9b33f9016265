package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/fake"
)

// TestScale measures what serve costs with as many pods as PODRUN_SCALE_FAKE says, in virtual time, and prints
// a row of a table for each number: what is podrun's own, without containerd and processes. It never fails
// because of a time.
func TestScale(t *testing.T) {
	if os.Getenv("PODRUN_SCALE_FAKE") == "" {
		t.Skip("the scale is measured by make bench")
	}
	t.Log("\n| pods | start, CPU ms a pod | restart, CPU ms | edit, CPU ms | idle, CPU ms an hour a pod | heap, kB a pod |\n" +
		strings.Repeat("| --- ", 6) + "|")
	for _, number := range strings.Fields(os.Getenv("PODRUN_SCALE_FAKE")) {
		count, err := strconv.Atoi(number)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(number, func(t *testing.T) { t.Log("\n" + scale(t, count)) })
	}
}

func scale(t *testing.T, count int) (row string) {
	rt := fake.New("boot-1")
	rt.AddImage("good:1", fake.Script{})
	o := simulated(t, rt)
	write := func(name string, from, to int, command string) {
		var text strings.Builder
		for i := from; i < to; i++ {
			fmt.Fprintf(&text, "apiVersion: v1\nkind: Pod\nmetadata: {name: p%d}\nspec:\n  containers: [{name: c, image: \"good:1\", command: [%s]}]\n---\n", i, command)
		}
		if err := os.WriteFile(filepath.Join(o.Sources.Manifests[0], name), []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("all.yaml", 1, count, "a")
	write("one.yaml", 0, 1, "a")
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		before := cpuTime(t)
		go func() { done <- Serve(ctx, o, false) }()
		cost := func(virtual time.Duration, cause func()) float64 {
			before := cpuTime(t)
			cause()
			time.Sleep(virtual)
			synctest.Wait()
			return float64(cpuTime(t)-before) / float64(time.Millisecond)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		start := float64(cpuTime(t)-before) / float64(time.Millisecond)
		one := pod.Key{Namespace: "default", Name: "p0-n"}
		seen, err := rt.Inspect(ctx, one)
		if err != nil || len(seen.Containers) != 1 {
			t.Fatalf("%+v, %v", seen, err)
		}
		idle := cost(time.Hour, func() {})
		minute := cost(time.Minute, func() {})
		restart := cost(time.Minute, func() { rt.Exit(seen.Containers[0].ID, 1) }) - minute
		edit := cost(time.Minute, func() { write("one.yaml", 0, 1, "b") }) - minute
		var memory runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&memory)
		row = fmt.Sprintf("| %d | %.2f | %.1f | %.1f | %.1f | %.1f |", count, start/float64(count), restart, edit,
			idle/float64(count), float64(memory.HeapAlloc)/1e3/float64(count))
		stop()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return row
}

// cpuTime returns the CPU time that this process has used.
func cpuTime(t *testing.T) time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
