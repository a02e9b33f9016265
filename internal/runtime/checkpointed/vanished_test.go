package checkpointed_test

import (
	"log/slog"
	"slices"
	"testing"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/checkpointed"
	"podrun.io/podrun/internal/runtime/fake"
)

// TestVanishedInstanceIsKilled checks that the process of an instance whose record another program has
// removed is killed before another instance starts in its place, and before its sandbox is removed.
func TestVanishedInstanceIsKilled(t *testing.T) {
	for name, next := range map[string]func(t *testing.T, r *checkpointed.Runtime, s runtime.Start) error{
		"another instance starts": func(t *testing.T, r *checkpointed.Runtime, s runtime.Start) error {
			s.Attempt = 1
			return r.StartContainer(t.Context(), s)
		},
		"the sandbox is removed": func(t *testing.T, r *checkpointed.Runtime, s runtime.Start) error {
			return r.RemoveSandbox(t.Context(), s.Sandbox.ID, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := fake.NewEngine("boot")
			e.AddImage("web:1", fake.Script{})
			quiet := slog.New(slog.DiscardHandler)
			r := checkpointed.New(checkpointed.Options{
				Driver: e.Driver(), Store: checkpoint.NewStoreOn(checkpoint.NewMemory(nil), quiet),
				Boot: e.Boot, Dirs: layout.Dirs{}, Log: quiet,
			})
			p := benchPod(0)
			startPod(t, r, p)
			c, err := r.Store().Get(p.UID)
			if err != nil {
				t.Fatal(err)
			}
			killed := func() int { return slices.Index(e.Calls(), "KillRemains "+c.Instances[0].ID) }
			e.Vanish(c.Instances[0].ID)
			start := runtime.Start{Pod: p, Container: &p.Spec.Containers[0], Sandbox: c.Sandboxes[0], Image: pod.Image{Name: "web:1"}}
			before := len(e.Calls())
			if err := next(t, r, start); err != nil {
				t.Fatal(err)
			}
			made := slices.IndexFunc(e.Calls()[before:], func(call string) bool {
				return call == "RemoveSandbox "+c.Sandboxes[0].ID || len(call) > 15 && call[:15] == "StartContainer "
			})
			if at := killed(); at < 0 || made < 0 || at > before+made {
				t.Errorf("killed by call %d of %q, want before %d", at, e.Calls(), before+made)
			}
		})
	}
}
