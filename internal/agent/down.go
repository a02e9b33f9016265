package agent

import (
	"context"
	"fmt"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status"
)

// Down stops and removes the pods that pick chooses, gracefully, and returns what it removed. It refuses
// while serve runs, which would start them again.
func Down(ctx context.Context, o Options, pick func([]pod.Key) ([]pod.Key, error)) ([]pod.Key, error) {
	unlock, err := lockServe(o.Dirs)
	if err != nil {
		return nil, err
	}
	defer unlock()
	board := newBoard(status.NewFiles(o.Dirs), manifest.Desired{}, nil)
	h, err := open(ctx, o, "", board)
	if err != nil {
		return nil, err
	}
	defer h.close()
	chosen, err := h.choose(ctx, pick)
	if err != nil || len(chosen) == 0 {
		return nil, err
	}
	h.loop.Takes = func(seen pod.Observed) bool { return chosen[seen.Key] }
	work, stop := context.WithCancel(ctx)
	defer stop()
	h.run(work, func(ctx context.Context, out chan<- manifest.Desired) {
		defer stop()
		send(ctx, out, manifest.Desired{Complete: true})
		board.waitGone(ctx, len(chosen))
	})
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("stopping pods: %w", err)
	}
	removed := make([]pod.Key, 0, len(chosen))
	for key := range chosen {
		removed = append(removed, key)
	}
	return removed, nil
}

func (h *house) choose(ctx context.Context, pick func([]pod.Key) ([]pod.Key, error)) (map[pod.Key]bool, error) {
	all, err := h.conn.Runtime.List(ctx)
	if err != nil {
		return nil, err
	}
	var keys []pod.Key
	for _, o := range all {
		keys = append(keys, o.Key)
	}
	picked, err := pick(keys)
	if err != nil {
		return nil, err
	}
	chosen := map[pod.Key]bool{}
	for _, key := range picked {
		chosen[key] = true
	}
	return chosen, nil
}
