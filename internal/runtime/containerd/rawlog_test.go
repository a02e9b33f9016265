package containerd_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/containerd/daemontest"
)

// TestOutputIsOfTheInstance checks that two instances of one attempt, which exist after a
// checkpoint was lost, have separate output, and that the output of one is removed without that of
// the other.
func TestOutputIsOfTheInstance(t *testing.T) {
	r := newRig(t, daemontest.Embedded(t), "while :; do echo here; sleep 0.05; done")
	o, err := r.Inspect(t.Context(), r.key)
	if err != nil {
		t.Fatal(err)
	}
	r.start.Sandbox = o.Sandboxes[0]
	var both []pod.Container
	for range 2 {
		s := r.start
		s.ID, s.Started = newID(), func(string) error { return nil }
		if err := r.Driver.StartContainer(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		both = append(both, pod.Container{ID: s.ID, UID: s.Pod.UID, Name: "main"})
	}
	old, next := both[0], both[1]
	stdout := func(c pod.Container) string {
		return filepath.Join(r.Dirs.Revision(c.UID).RawLog(c.Name, c.ID), "stdout.raw")
	}
	if err := r.Driver.SignalContainer(t.Context(), old.ID, "SIGKILL"); err != nil {
		t.Fatal(err)
	}
	daemontest.Eventually(t, "the old one is removed", func() bool {
		return r.Driver.ReapContainer(t.Context(), old.ID) == nil && r.Driver.RemoveContainer(t.Context(), pod.Container{ID: old.ID}, time.Time{}) == nil
	})
	if _, err := os.Stat(filepath.Dir(stdout(old))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the output of the old one is left: %v", err)
	}
	size := func() int64 {
		info, err := os.Stat(stdout(next))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	before := size()
	daemontest.Eventually(t, "the new one's output grows", func() bool { return size() > before })
	if err := r.Driver.SignalContainer(t.Context(), next.ID, "SIGKILL"); err != nil {
		t.Fatal(err)
	}
	daemontest.Eventually(t, "the new one is removed", func() bool {
		return r.Driver.ReapContainer(t.Context(), next.ID) == nil && r.Driver.RemoveContainer(t.Context(), next, time.Time{}) == nil
	})
}
