package relist_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/relist"
)

// steady is a runtime in which nothing changes: its lists are made in advance, so that a benchmark
// measures package relist alone.
type steady []pod.Observed

func (s steady) List(context.Context) ([]pod.Observed, error) { return s, nil }
func (s steady) Inspect(_ context.Context, key pod.Key) (pod.Observed, error) {
	for _, o := range s {
		if o.Key == key {
			return o, nil
		}
	}
	return pod.Observed{Key: key}, nil
}

func machine(n int) steady {
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

// clock ends Run after the first list and n more, and measures those. A list begins when the
// previous one is finished and its events are read.
type clock struct {
	b     *testing.B
	lists int
	stop  context.CancelFunc
}

func (c *clock) Relisted(time.Time, time.Duration, error) {
	switch c.lists++; c.lists {
	case 2:
		c.b.ResetTimer()
	case c.b.N + 2:
		c.b.StopTimer()
		c.stop()
	}
}
func (*clock) Inspected(time.Duration, error) {}
func (*clock) Stream(bool, error)             {}
func (*clock) Notified(time.Duration)         {}
func (*clock) Happened(relist.Kind)           {}

// BenchmarkRelist measures relist's part of a full list after the first one: comparing and storing.
// It must be linear in the number of containers.
func BenchmarkRelist(b *testing.B) {
	for _, n := range []int{10, 100, 1_000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			ctx, stop := context.WithCancel(b.Context())
			defer stop()
			// With the shortest possible period, lists follow each other without a pause.
			r := relist.New(relist.Options{Lister: machine(n), Period: 1, Observer: &clock{b: b, stop: stop}, Log: slog.New(slog.DiscardHandler)})
			out := make(chan relist.Event)
			go func() {
				for range out {
				}
			}()
			b.ReportAllocs()
			_ = r.Run(ctx, out) // ends with ctx
			close(out)
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/container")
		})
	}
}
