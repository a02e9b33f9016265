package query

import (
	"context"
	"sync"
	"time"

	"podrun.io/podrun/internal/sys/watch"
)

// watchPoll is how often a watched directory is read if no change is notified.
const watchPoll = 2 * time.Second

// OnChange calls f at once, and again whenever a file in dir may have changed, until f returns true
// or an error or ctx ends. It returns the error of f or the cause of the end of ctx.
func (r *Reader) OnChange(ctx context.Context, dir string, f func() (done bool, err error)) error {
	ctx, cancel := context.WithCancel(ctx)
	w := watch.New(r.Log)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { _ = w.Run(ctx) })
	ticker := time.NewTicker(watchPoll)
	defer ticker.Stop()
	for {
		// The watch is added anew each time, because the directory may not exist yet or may have
		// been replaced.
		_ = w.Add(dir)
		if done, err := f(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.Events():
		case <-ticker.C:
		}
	}
}
