package checkpointed_test

import (
	"context"
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/fake"
)

// TestSandboxStaysUntilItsPodHasEnded: the last sandbox of a completed pod is forgotten only when nothing is left to do.
func TestSandboxStaysUntilItsPodHasEnded(t *testing.T) {
	t.Parallel()
	r := fake.New("boot-1")
	p := &v1.Pod{}
	p.Name, p.Namespace, p.UID = "job-n", "default", "0123456789abcdef"
	if err := errors.Join(r.SavePod(p, "serve"), r.CreateSandbox(t.Context(), p, 0), r.CreateSandbox(t.Context(), p, 1)); err != nil {
		t.Fatal(err)
	}
	left := func() []pod.Sandbox {
		o, err := r.Inspect(t.Context(), pod.KeyOf(p))
		if err != nil {
			t.Fatal(err)
		}
		return o.Sandboxes
	}
	busy, calls := errors.New("busy"), 0
	remove := func(with error) error {
		return r.RemoveSandbox(t.Context(), left()[0].ID, func(context.Context) error { calls++; return with })
	}
	if err := remove(busy); err != nil || calls > 0 || len(left()) != 1 {
		t.Errorf("one of two: %v, %d calls, left %v", err, calls, left())
	}
	if err := remove(busy); !errors.Is(err, busy) || len(left()) != 1 {
		t.Errorf("busy: %v, left %v", err, left())
	}
	if err := remove(nil); err != nil || calls != 2 || len(left()) > 0 {
		t.Errorf("at last: %v, %d calls, left %v", err, calls, left())
	}
}
