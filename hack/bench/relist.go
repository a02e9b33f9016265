package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"

	"podrun.io/podrun/hack/bench/sections"
	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/device"
	"podrun.io/podrun/internal/network/bridge"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/relist"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/checkpointed"
	adapter "podrun.io/podrun/internal/runtime/containerd"
	"podrun.io/podrun/internal/sandbox"
)

const (
	// relists is how many full lists are timed in a row. relistRounds is how often that is
	// repeated, alternating with the bare calls.
	relists      = 50
	relistRounds = 9
	wantedRelist = 1.5
)

// measureRelist compares podrun's full list (containers, tasks, sandboxes, data, and the comparison
// with the previous list) with the two calls to containerd that it cannot do without.
func measureRelist(ctx context.Context, o options, on site, m *marks) (err error) {
	n, err := newNode(ctx, o.podrun, on, m)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close(context.WithoutCancel(ctx))) }()
	dirs := dirsOf(on.dir, filepath.Join(on.dir, "run"))
	log := slog.New(slog.DiscardHandler)
	d, err := adapter.New(ctx, adapter.Options{Address: on.address, Dirs: dirs, Log: log,
		Devices: device.New(device.Options{Dirs: dirs}),
		Sandboxes: sandbox.New(sandbox.Options{Dirs: dirs, Log: log,
			Network: bridge.New(bridge.Options{Dirs: dirs, Log: log})})})
	if err != nil {
		return err
	}
	defer d.Close()
	r := checkpointed.New(checkpointed.Options{
		Driver: d, Store: checkpoint.NewStore(dirs, log), Boot: func() string { return "" }, Dirs: dirs, Log: log,
	})
	var table bytes.Buffer
	fmt.Fprintln(&table, "| containers | two calls, ms | full list, ms | ratio | wanted |")
	fmt.Fprintln(&table, "| --- | --- | --- | --- | --- |")
	have := 0
	for _, count := range []int{10, 100} {
		if _, err := n.many(ctx, fmt.Sprint("relist", count), count-have); err != nil {
			return err
		}
		have = count
		// The work of starting the pods has ended after this time.
		if err := sleep(ctx, 5*time.Second); err != nil {
			return err
		}
		var bare, full []time.Duration
		for range relistRounds {
			b, err := bareCalls(ctx, on.client, count)
			if err != nil {
				return err
			}
			f, err := fullLists(ctx, r, log)
			if err != nil {
				return err
			}
			bare, full = append(bare, b), append(full, f)
		}
		fmt.Fprintf(&table, "| %d | %s | %s | **%.2f** | ≤ %.2f |\n", count,
			median3(bare), median3(full), float64(median(full))/float64(median(bare)), wantedRelist)
	}
	for _, count := range []int{10, 100, 1_000, 10_000} {
		var full []time.Duration
		for range relistRounds {
			f, err := fullLists(ctx, madeUp(count), log)
			if err != nil {
				return err
			}
			full = append(full, f)
		}
		fmt.Fprintf(&table, "| %d, made up | | %s | | linear |\n", count, median3(full))
	}
	return publish(ctx, o, on.client, table.String(), func(machine string) error {
		section := fmt.Sprintf(relistSection, relistRounds, relists, table.String(), machine)
		return sections.Write(o.markdown, sections.Relist, section)
	})
}

func median3(d []time.Duration) string {
	return fmt.Sprintf("%.3f", float64(median(d))/float64(time.Millisecond))
}

const relistSection = `
The cost of listing everything: podrun's full list (containers, tasks, sandboxes and data directories, and the
comparison with the previous list) against the two calls to containerd that it needs, listing containers and listing
tasks, made by the containerd client alone. The pods are real and idle and have one container each. Both run in turns on
the same containerd; the table has medians of %d rounds of %d lists. The rows "made up" use a fake runtime that
answers at once: they measure podrun's own comparison.

%s
Taken on: %s.
`

// madeUp returns a runtime with n pods in which nothing happens and all data is in memory.
func madeUp(n int) runtime.Lister {
	var s steady
	for i := range n {
		key := pod.Key{Namespace: "default", Name: fmt.Sprint("pod-", i)}
		uid := pod.UID(key.Name)
		s = append(s, pod.Observed{Key: key, Data: []pod.UID{uid},
			Sandboxes:  []pod.Sandbox{{ID: key.Name + "-s", UID: uid, Ready: true}},
			Containers: []pod.Container{{ID: key.Name + "-c", Name: "c", UID: uid, State: pod.Running}}})
	}
	return s
}

type steady []pod.Observed

// List implements runtime.Lister.
func (s steady) List(context.Context) ([]pod.Observed, error) { return s, nil }

// Inspect implements runtime.Lister. It is not called.
func (s steady) Inspect(context.Context, pod.Key) (pod.Observed, error) {
	return pod.Observed{}, errors.ErrUnsupported
}

// bareCalls times the containerd calls of a full list, with the containerd client alone.
func bareCalls(ctx context.Context, client *containerd.Client, count int) (time.Duration, error) {
	ctx = namespaces.WithNamespace(ctx, adapter.DefaultNamespace)
	begin := time.Now()
	for range relists {
		found, err := client.ContainerService().List(ctx)
		if err != nil {
			return 0, err
		}
		answer, err := client.TaskService().List(ctx, &tasks.ListTasksRequest{})
		if err != nil {
			return 0, err
		}
		if len(found) != count || len(answer.Tasks) != count {
			return 0, fmt.Errorf("%d containers and %d tasks, want %d", len(found), len(answer.Tasks), count)
		}
	}
	return time.Since(begin) / relists, nil
}

// fullLists times a relister that lists without a pause, after its first list.
func fullLists(ctx context.Context, r runtime.Lister, log *slog.Logger) (time.Duration, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	watch := &stopwatch{stop: stop}
	events := make(chan relist.Event)
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			select {
			case <-events:
			case <-ctx.Done():
				return
			}
		}
	})
	err := relist.New(relist.Options{Lister: r, Period: 1, Observer: watch, Log: log}).Run(ctx, events)
	reading.Wait()
	if watch.err != nil || !errors.Is(err, context.Canceled) {
		return 0, errors.Join(watch.err, err)
	}
	return watch.took / relists, nil
}

// stopwatch times the lists between the second and the last, from the start of one to the start of
// the next.
type stopwatch struct {
	lists int
	first time.Time
	took  time.Duration
	err   error
	stop  context.CancelFunc
}

// Relisted implements relist.Observer.
func (w *stopwatch) Relisted(began time.Time, _ time.Duration, err error) {
	if err != nil {
		w.err = err
		w.stop()
	}
	switch w.lists++; w.lists {
	case 2:
		w.first = began
	case relists + 2:
		w.took = began.Sub(w.first)
		w.stop()
	}
}

// Inspected implements relist.Observer.
func (*stopwatch) Inspected(time.Duration, error) {}

// Stream implements relist.Observer.
func (*stopwatch) Stream(bool, error) {}

// Notified implements relist.Observer.
func (*stopwatch) Notified(time.Duration) {}

// Happened implements relist.Observer.
func (*stopwatch) Happened(relist.Kind) {}
