package volume

import (
	"context"
	"fmt"
	"sync"
	"time"

	"podrun.io/podrun/internal/pod"
)

// moment is how long what ends by its context may take for that.
const moment = time.Second

// attempts runs what accesses volumes, whose file systems may not answer: a process that waits for one of them cannot
// be interrupted. Nobody waits for an attempt after the end of its context, and there is one at a time for a pod.
type attempts struct {
	mu sync.Mutex
	of map[pod.UID]chan struct{} // closed when the attempt has ended
}

// do calls f, after another attempt for the pod has ended, and waits for it until ctx ends. f then goes on until it
// gets an answer, and must change nothing after that.
func (a *attempts) do(ctx context.Context, uid pod.UID, f func(ctx context.Context) error) error {
	done := make(chan struct{})
	for {
		a.mu.Lock()
		before := a.of[uid]
		if before == nil {
			a.of[uid] = done
		}
		a.mu.Unlock()
		if before == nil {
			break
		}
		select {
		case <-before:
		case <-ctx.Done():
			return noAnswer(ctx)
		}
	}
	var err error
	go func() {
		defer func() {
			a.mu.Lock()
			delete(a.of, uid)
			a.mu.Unlock()
			close(done)
		}()
		err = f(ctx)
	}()
	select {
	case <-done:
		return err
	case <-ctx.Done():
	}
	select { // what ends by its context does so at once
	case <-done:
		return err
	case <-time.After(moment):
		return noAnswer(ctx)
	}
}

func noAnswer(ctx context.Context) error {
	return notMounted(fmt.Errorf("a file system of the pod's volumes does not answer: %w", context.Cause(ctx)))
}
