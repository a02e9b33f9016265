package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	containerd "github.com/containerd/containerd/v2/client"

	"podrun.io/podrun/internal/test/usage"
)

// floorWorkers is how many containers the floor creates in parallel.
const floorWorkers = 4

// roundTimeout limits one round, including the removal of its pods.
const roundTimeout = 3 * time.Minute

// pair has the times of both sides for the same job.
type pair struct{ floor, podrun []time.Duration }

// results has all results of a run.
type results struct {
	one, restart, update, many pair
	pull                       pair
	pss                        float64       // MB with many idle pods
	cpu                        time.Duration // per second with many idle pods
	network                    []time.Duration
}

// site is where both sides run.
type site struct {
	client *containerd.Client
	// address is containerd's socket; its programs are in bin.
	address, bin string
	// archive is the image's archive, dir is for files of the benchmark.
	archive, dir string
	plugins      bool // podrun runs with --plugins
}

// side is one of the two sides that are compared.
type side struct {
	one, restart, update, many job
	remove                     func(ctx context.Context, prefix string) error
}

// job is what is measured once, with pods whose names have a prefix.
type job func(ctx context.Context, prefix string) (time.Duration, error)

// measure runs all rounds, alternating between the two sides.
func measure(ctx context.Context, o options, on site, m *marks) (r results, err error) {
	f, err := newFloor(ctx, on.client, on.archive, on.dir, m)
	if err != nil {
		return r, err
	}
	floorSide := side{
		one: func(ctx context.Context, p string) (time.Duration, error) { return f.many(ctx, p, 1, 1) },
		many: func(ctx context.Context, p string) (time.Duration, error) {
			return f.many(ctx, p, o.pods, floorWorkers)
		},
		restart: f.restart, update: f.update, remove: f.remove,
	}
	n, err := newNode(ctx, o.podrun, on, m)
	if err != nil {
		return r, err
	}
	defer func() {
		if err != nil {
			log, _ := os.ReadFile(on.dir + "/serve.log")
			err = fmt.Errorf("%w\nlog of podrun serve:\n%s", err, log)
		}
		err = errors.Join(err, n.Close(context.WithoutCancel(ctx)))
	}()
	podrunSide := side{
		one:     func(ctx context.Context, p string) (time.Duration, error) { return n.many(ctx, p, 1) },
		many:    func(ctx context.Context, p string) (time.Duration, error) { return n.many(ctx, p, o.pods) },
		restart: n.restart, update: n.update, remove: n.remove,
	}
	if err := r.rounds(ctx, o, floorSide, podrunSide); err != nil {
		return r, err
	}
	if r.network, err = measureNetwork(ctx, on.dir, o.pods); err != nil {
		return r, fmt.Errorf("network: %w", err)
	}
	return r, r.idle(ctx, o, n)
}

// rounds measures all jobs and stores their times.
func (r *results) rounds(ctx context.Context, o options, floor, podrun side) error {
	jobs := []struct {
		name   string
		rounds int
		into   *pair
		of     func(*side) job
	}{
		{"one", o.rounds, &r.one, func(s *side) job { return s.one }},
		{"restart", o.rounds, &r.restart, func(s *side) job { return s.restart }},
		{"update", o.rounds, &r.update, func(s *side) job { return s.update }},
		{"many", o.manyRounds, &r.many, func(s *side) job { return s.many }},
	}
	for _, job := range jobs {
		for i := range job.rounds + 1 {
			into := job.into
			if i == 0 { // the first round of each job is a warm-up
				into = &pair{}
			}
			d, err := round(ctx, floor, job.of(&floor), fmt.Sprintf("f%s%d", job.name, i))
			if err != nil {
				return fmt.Errorf("floor, %s: %w", job.name, err)
			}
			into.floor = append(into.floor, d)
			if d, err = round(ctx, podrun, job.of(&podrun), fmt.Sprintf("p%s%d", job.name, i)); err != nil {
				return fmt.Errorf("podrun, %s: %w", job.name, err)
			}
			into.podrun = append(into.podrun, d)
		}
	}
	return nil
}

// round runs a job once and removes its pods.
func round(ctx context.Context, s side, job job, prefix string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	if err := settle(ctx); err != nil {
		return 0, err
	}
	d, err := job(ctx, prefix)
	if err != nil {
		return 0, err
	}
	return d, s.remove(ctx, prefix)
}

// idle measures the CPU time and memory of podrun while its pods are idle.
func (r *results) idle(ctx context.Context, o options, n *node) error {
	if _, err := n.many(ctx, "idle", o.pods); err != nil {
		return err
	}
	pid := n.cmd.Process.Pid
	// The work of starting them ends after a few relists.
	if err := sleep(ctx, 5*time.Second); err != nil {
		return err
	}
	before, err := usage.CPU(pid)
	if err != nil {
		return err
	}
	if err := sleep(ctx, o.idle); err != nil {
		return err
	}
	after, err := usage.CPU(pid)
	if err != nil {
		return err
	}
	r.cpu = time.Duration(float64(after-before) / o.idle.Seconds())
	r.pss, err = usage.PSS(pid)
	return errors.Join(err, n.remove(ctx, "idle"))
}
