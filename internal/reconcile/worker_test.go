package reconcile

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/probe"
)

// witness is an Inspector that must not be called, and a Prober without targets.
type witness struct{ t *testing.T }

func (w witness) Inspect(ctx context.Context, key pod.Key) (pod.Observed, error) {
	w.t.Error("it looks, and may act, before it knows what is wanted")
	return pod.Observed{}, context.Canceled
}
func (w witness) Seen(key pod.Key) pod.Observed                                  { return pod.Observed{Key: key} }
func (w witness) Listed() <-chan struct{}                                        { return nil }
func (w witness) Set(pod.Key, []probe.Target)                                    {}
func (w witness) Results(pod.Key) map[string]pod.Probed                          { return nil }
func (w witness) Hook(context.Context, probe.Target, *v1.LifecycleHandler) error { return nil }

// TestAWorkerWaitsToBeTold: a worker that has not received a desired state yet terminates nothing.
func TestAWorkerWaitsToBeTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		o := &Options{Inspector: witness{t}, Prober: witness{t}, Log: slog.New(slog.DiscardHandler)}
		w := newWorker(pod.Key{Namespace: "default", Name: "web"}, o, newShared(&Options{Parallel: 1}))
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.run(ctx, nil)
		}()
		synctest.Wait()
		cancel()
		<-done
	})
}
