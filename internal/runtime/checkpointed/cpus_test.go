package checkpointed_test

import (
	"errors"
	"testing"

	"podrun.io/podrun/internal/pod"
)

// TestCPUsAreUnknownMeanwhile: as long as it is not known whether an instance was put on other CPUs, also because
// podrun ended meanwhile, no record says that it is on the former ones.
func TestCPUsAreUnknownMeanwhile(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	r := m.podrun()
	p := benchPod(0)
	startPod(t, r, p)
	cut := errors.New("cut off")
	for _, step := range []struct {
		cpus string
		err  error
		want string
	}{
		{"0-1", nil, "0-1"}, {"0", cut, pod.Unchosen}, {"", nil, pod.Unchosen}, {"0", nil, "0"}, {"0", cut, "0"}, {"", cut, "0"},
	} {
		m.engine.Fail("ResizeContainer", step.err)
		c, err := r.Store().Get(p.UID)
		if err != nil {
			t.Fatal(err)
		}
		err = r.ResizeContainer(t.Context(), c.Instances[0].ID, p, &p.Spec.Containers[0], step.cpus)
		if (err != nil) != (step.err != nil) {
			t.Errorf("%+v: %v", step, err)
		}
		if c, err = r.Store().Get(p.UID); err != nil || c.Instances[0].CPUs != step.want {
			t.Errorf("%+v: %q, %v", step, c.Instances[0].CPUs, err)
		}
	}
}
