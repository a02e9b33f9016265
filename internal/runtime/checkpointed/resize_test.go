package checkpointed_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/checkpointed"
)

// resizing is a driver of which it is not known whether it has resized an instance.
type resizing struct {
	runtime.Driver
	asked runtime.Resize
	err   error
}

func (d *resizing) ResizeContainer(ctx context.Context, to runtime.Resize) error {
	d.asked = to
	return errors.Join(d.Driver.ResizeContainer(ctx, to), d.err)
}

// TestResourcesAreUnknownMeanwhile: as long as it is not known whether an instance was resized, also because podrun ended
// meanwhile, each record says what it may run with, and the pod gets no less than that.
func TestResourcesAreUnknownMeanwhile(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	p := benchPod(0)
	c := &p.Spec.Containers[0]
	limit := func(size string) {
		c.Resources = v1.ResourceRequirements{}
		if size != "" {
			c.Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse(size)}
		}
	}
	limit("3Gi")
	startPod(t, m.podrun(), p)
	cut := errors.New("cut off")
	const one, two, three = "limits.memory=1Gi", "limits.memory=2Gi", "limits.memory=3Gi"
	for _, step := range []struct {
		size              string
		err               error
		held              string
		resources, unsure string
	}{
		{"3Gi", cut, three, three, ""},
		{"1Gi", cut, three, three, ";" + one},
		{"1Gi", cut, three + ";" + one, three, ";" + one}, // again
		{"", cut, three + ";" + one, three, ";" + one + ";"},
		{"3Gi", nil, three + ";" + one + ";", three, ""},
		{"2Gi", nil, three, two, ""},
	} {
		log := slog.New(slog.NewTextHandler(t.Output(), nil))
		driver := &resizing{Driver: m.engine.Driver(), err: step.err}
		r := checkpointed.New(checkpointed.Options{ // a podrun that has just been started
			Driver: driver, Store: checkpoint.NewStore(m.dirs, log), Boot: m.engine.Boot, Dirs: m.dirs, Log: log,
		})
		before, err := r.Inspect(t.Context(), pod.KeyOf(p))
		if err != nil {
			t.Fatal(err)
		}
		limit(step.size)
		if err := r.ResizeContainer(t.Context(), before.Containers[0].ID, p, c, ""); !errors.Is(err, step.err) {
			t.Errorf("%+v: %v", step, err)
		}
		if got := driver.asked.Running[c.Name]; got != step.held {
			t.Errorf("%+v: the pod has what holds %q", step, got)
		}
		after, err := r.Inspect(t.Context(), pod.KeyOf(p))
		if err != nil {
			t.Fatal(err)
		}
		if got := after.Containers[0]; got.Resources != step.resources || got.Resizing != step.unsure {
			t.Errorf("%+v: %q%q", step, got.Resources, got.Resizing)
		}
	}
}
