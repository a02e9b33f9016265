package checkpointed_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/checkpointed"
	"podrun.io/podrun/internal/runtime/fake"
)

// talkative returns errors with the IDs that it was given.
type talkative struct {
	fake.Driver
	start func(err error) error
}

func (d talkative) CreateSandbox(_ context.Context, _ *v1.Pod, s pod.Sandbox) (pod.Sandbox, error) {
	return s, &runtime.ReasonError{Reason: "Why", Err: fmt.Errorf("sandbox %s: mkdir /run/%s/net: no space", s.ID, s.ID)}
}

func (d talkative) StartContainer(_ context.Context, s runtime.Start) error {
	return d.start(fmt.Errorf("runc create %s: /run/%s/rootfs is not there", s.ID, s.ID))
}

func (d talkative) Exec(_ context.Context, id string, _ []string, _ runtime.ExecIO) (int, error) {
	return 0, fmt.Errorf("container %q: %w", id, runtime.ErrNotFound)
}

// TestErrorsRepeat: an attempt that fails like the one before has the same error, although it had
// another ID: only equal events are counted as one.
func TestErrorsRepeat(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		start func(err error) error
		is    func(err error) bool
	}{
		"start": {func(err error) error { return &runtime.StartError{Err: err} },
			func(err error) bool { return errors.As(err, new(*runtime.StartError)) }},
		"unknown": {func(err error) error { return &runtime.StartError{Err: err, Unknown: true} },
			func(err error) bool { return errors.As(err, new(*runtime.StartError)) }},
		"cut off": {func(err error) error { return fmt.Errorf("%w: %w", runtime.ErrCutOff, err) },
			func(err error) bool { return errors.Is(err, runtime.ErrCutOff) }},
		"not made": {func(err error) error { return err }, func(err error) bool { return err != nil }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := fake.NewEngine("boot")
			var ids []string
			r := checkpointed.New(checkpointed.Options{
				Driver: talkative{e.Driver(), c.start},
				Store:  checkpoint.NewStoreOn(checkpoint.NewMemory(nil), slog.New(slog.DiscardHandler)),
				NewID: func(checkpointed.ID) string {
					ids = append(ids, fmt.Sprintf("%032x", len(ids)+100))
					return ids[len(ids)-1]
				},
				Boot: e.Boot, Dirs: layout.Dirs{}, Log: slog.New(slog.DiscardHandler),
			})
			p := benchPod(0)
			if err := r.SavePod(p, "serve"); err != nil {
				t.Fatal(err)
			}
			var said [2]string
			for i := range said {
				err := r.CreateSandbox(t.Context(), p, i)
				if told := (*runtime.ReasonError)(nil); !errors.As(err, &told) || told.Reason != "Why" {
					t.Errorf("creating a sandbox: %v", err)
				}
				started := r.StartContainer(t.Context(), runtime.Start{
					Pod: p, Container: &p.Spec.Containers[0], Attempt: i, Sandbox: pod.Sandbox{ID: "s"},
				})
				if !c.is(started) {
					t.Errorf("starting: %v", started)
				}
				_, exec := r.Exec(t.Context(), ids[len(ids)-1], nil, runtime.ExecIO{})
				if !errors.Is(exec, runtime.ErrNotFound) {
					t.Errorf("exec: %v", exec)
				}
				o, read := r.Inspect(t.Context(), pod.KeyOf(p))
				if read != nil {
					t.Fatal(read)
				}
				said[i] = fmt.Sprint(err, "; ", started, "; ", exec)
				for _, c := range o.Containers {
					if c.Attempt == i {
						said[i] += "; " + c.Message
					}
				}
			}
			if said[0] != said[1] || !strings.Contains(said[0], "/run/…/net") || !strings.Contains(said[0], "/run/…/rootfs") {
				t.Errorf("%s\n%s", said[0], said[1])
			}
		})
	}
}
