package main

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"podrun.io/podrun/hack/bench/viewer"
)

// wantedPageCPU is for the page of all pods and that of a pod, open in a browser: 2 % of a processor, per minute.
const wantedPageCPU = 1200 * time.Millisecond

// whileOpen measures the processes of a side while a page is open. What they do when idle is in it too.
func whileOpen(ctx context.Context, dir, page string) (time.Duration, error) {
	end, err := viewer.Open(ctx, filepath.Join(dir, "run", "podrun.sock"), page)
	if err != nil {
		return 0, err
	}
	before, err := loadOf(dir)
	if err == nil {
		err = sleep(ctx, idleFor)
	}
	if err = errors.Join(err, end()); err != nil {
		return 0, err
	}
	after, err := loadOf(dir)
	return after.cpu - before.cpu, err
}
