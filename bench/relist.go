package main

import (
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

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/network"
	"podrun.io/podrun/internal/relist"
	adapter "podrun.io/podrun/internal/runtime/containerd"
	"podrun.io/podrun/internal/sandbox"
)

const (
	// relists is how many full lists are timed in a row, and relistRounds how often, in turns with the
	// bare calls.
	relists      = 50
	relistRounds = 9
	wantedRelist = 1.5
)

// measureRelist compares podrun's full list (containers, tasks, sandboxes, data, and the comparison with
// what was seen before) with the two calls that it cannot do without.
func measureRelist(ctx context.Context, o options, client *containerd.Client, address, archive, dir string, m *marks) (err error) {
	n, err := newNode(ctx, client, address, o.podrun, archive, dir, m)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close(context.WithoutCancel(ctx))) }()
	dirs := layout.Dirs{Root: filepath.Join(dir, "podrun"), Run: filepath.Join(dir, "run"), Log: filepath.Join(dir, "log")}
	log := slog.New(slog.DiscardHandler)
	r, err := adapter.New(ctx, adapter.Options{Address: address, Dirs: dirs, Log: log,
		Sandboxes: sandbox.New(sandbox.Options{Dirs: dirs, Log: log, Network: network.NewBridge(network.Options{Dirs: dirs, Log: log})})})
	if err != nil {
		return err
	}
	defer r.Close()
	fmt.Println("| containers | two calls, ms | full list, ms | ratio | wanted |")
	fmt.Println("| --- | --- | --- | --- | --- |")
	have := 0
	for _, count := range []int{10, 100} {
		if _, err := n.many(ctx, fmt.Sprint("relist", count), count-have); err != nil {
			return err
		}
		have = count
		// The pods' own start is over when nothing changes any more.
		if err := sleep(ctx, 5*time.Second); err != nil {
			return err
		}
		var bare, full []time.Duration
		for range relistRounds {
			b, err := bareCalls(ctx, client, count)
			if err != nil {
				return err
			}
			f, err := fullLists(ctx, r, log)
			if err != nil {
				return err
			}
			bare, full = append(bare, b), append(full, f)
		}
		fmt.Printf("| %d | %s | %s | **%.2f** | ≤ %.2f |\n", count, spread3(bare), spread3(full), float64(median(full))/float64(median(bare)), wantedRelist)
	}
	return nil
}

func spread3(d []time.Duration) string {
	return fmt.Sprintf("%.3f", float64(median(d))/float64(time.Millisecond))
}

// bareCalls times what a full list asks containerd, with the client alone.
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
func fullLists(ctx context.Context, r *adapter.Runtime, log *slog.Logger) (time.Duration, error) {
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

// stopwatch times the lists between the first and the last: from one's beginning to the next's.
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

// Rang implements relist.Observer.
func (*stopwatch) Rang(time.Duration) {}

// Happened implements relist.Observer.
func (*stopwatch) Happened(relist.Kind) {}
