package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/hack/bench/sections"
)

// The bounds that podrun aims for. They are shown in the table.
const (
	wantedOne     = 1.3
	wantedMany    = 1.15
	wantedRestart = 1.4
	wantedUpdate  = 1.5
	wantedPSS     = 45                   // MB
	wantedCPU     = 2 * time.Millisecond // per second
	wantedNetwork = 5 * time.Millisecond
)

// print writes the table to standard output and, within the whole page, to the markdown file.
func (r results) print(ctx context.Context, o options, client *containerd.Client) error {
	var table bytes.Buffer
	fmt.Fprintln(&table, "| job | containerd alone, ms | podrun, ms | ratio | wanted |")
	fmt.Fprintln(&table, "| --- | --- | --- | --- | --- |")
	r.one.row(&table, "manifest dropped → process running", wantedOne)
	r.many.row(&table, fmt.Sprintf("%d one-container pods dropped → last running", o.pods), wantedMany)
	r.restart.row(&table, "kill -9 → replacement running", wantedRestart)
	r.update.row(&table, "manifest edited → new process running", wantedUpdate)
	if len(r.pull.podrun) > 0 {
		r.pull.row(&table, pullRow, wantedPull)
	}
	fmt.Fprintln(&table, r.networkRow())
	fmt.Fprintf(&table, "| PSS with %d idle pods | | %.1f MB | | ≤ %d MB |\n", o.pods, r.pss, wantedPSS)
	fmt.Fprintf(&table, "| CPU with %d idle pods | | %s ms/s | | ≤ %s ms/s |\n", o.pods, ms(r.cpu), ms(wantedCPU))
	return publish(ctx, o, client, table.String(), func(machine string) error {
		page := fmt.Sprintf(page, o.rounds, o.manyRounds, floorWorkers, table.String(), machine)
		return os.WriteFile(o.markdown, []byte(strings.TrimRight(page, "\n")+sections.Kept(o.markdown)), 0o644)
	})
}

// publish prints a table and, if there is a markdown file, calls write with what describes the machine.
func publish(
	ctx context.Context, o options, client *containerd.Client, table string, write func(machine string) error,
) error {
	fmt.Print(table)
	if o.markdown == "" {
		return nil
	}
	version, err := client.Version(ctx)
	if err != nil {
		return fmt.Errorf("reading containerd's version: %w", err)
	}
	return write(machine(version.Version))
}

// networkRow returns the table row for a pod's network.
func (r results) networkRow() string {
	return fmt.Sprintf("| pod's network ready, with podrun's own bridge | | %s | | ≤ %s ms |",
		spread(r.network), ms(wantedNetwork))
}

// row writes a table row: medians, with minimum and maximum in brackets.
func (p pair) row(w *bytes.Buffer, name string, wanted float64) {
	ratio := ""
	if len(p.podrun) > 0 {
		ratio = fmt.Sprintf("**%.2f**", float64(median(p.podrun))/float64(median(p.floor)))
	}
	fmt.Fprintf(w, "| %s | %s | %s | %s | ≤ %.2f |\n", name, spread(p.floor), spread(p.podrun), ratio, wanted)
}

func spread(d []time.Duration) string {
	if len(d) == 0 {
		return ""
	}
	return fmt.Sprintf("%s (%s–%s)", ms(median(d)), ms(slices.Min(d)), ms(slices.Max(d)))
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/float64(time.Millisecond)) }

func median(d []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(d))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// machine describes the machine and the software of the measurement.
func machine(containerd string) string {
	var u unix.Utsname
	_ = unix.Uname(&u) // an empty release is acceptable
	runc, _ := exec.Command("runc", "--version").Output()
	first, _, _ := strings.Cut(string(runc), "\n")
	return fmt.Sprintf("%d cores, Linux %s, containerd %s, %s, %s",
		runtime.NumCPU(), unix.ByteSliceToString(u.Release[:]), containerd, first, runtime.Version())
}

const page = `# Benchmarks

Written by ` + "`make bench UPDATE=1`" + `; do not edit.

The benchmark compares podrun with a program that uses the containerd client alone: a snapshot, a spec and a task
with its own shim for each container. Both run in turns on the same containerd, with the same runtime, shim and image:
%d rounds of the single jobs, %d of the many. The table has medians, with minimum and maximum
in brackets. The program starts %d containers at a time.
A process counts as running when it has created a file in a directory of the host, as reported by the kernel.
podrun's times begin with the rename that adds the manifest, or with the kill; the program's with its first call.
The image is unpacked on both sides. podrun does more: it provides a network with an address, namespaces that outlive the
container, logs, and the decision when to do what.

%s
Taken on: %s.
`
