package record

import (
	"log/slog"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile"
	"podrun.io/podrun/internal/workload"
)

type nowhere struct{ reconcile.Publisher }

func (nowhere) Publish(*v1.Pod, time.Time, bool) error { return nil }
func (nowhere) Gone(pod.Key) error                     { return nil }

// TestResultOfARecordedEnd: what a status says of a Job's pod is its result when the checkpoint says so too. podrun may be
// killed between the two, and the pod would be taken for one that runs.
func TestResultOfARecordedEnd(t *testing.T) {
	t.Parallel()
	store := checkpoint.NewStoreOn(checkpoint.NewMemory(nil), slog.New(slog.DiscardHandler))
	r := New(nowhere{})
	if _, err := r.Recall(store); err != nil {
		t.Fatal(err)
	}
	p := &v1.Pod{}
	p.Namespace, p.Name, p.UID, p.Annotations = "default", "work-0-n", "0123456789abcdef", map[string]string{workload.Annotation: "Job/work"}
	if err := store.Create(p, owner.Serve); err != nil {
		t.Fatal(err)
	}
	set := func(states ...pod.State) {
		t.Helper()
		if err := store.Update(p.UID, func(c *checkpoint.Checkpoint) {
			c.Sandboxes, c.Instances = []pod.Sandbox{{ID: "s", UID: p.UID}}, nil
			for n, state := range states {
				i := pod.Container{ID: strconv.Itoa(n), Name: "c", UID: p.UID, SandboxID: "s", Attempt: n, State: state}
				c.Instances = append(c.Instances, i)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	publish := func(phase v1.PodPhase) (ended, changed bool) {
		t.Helper()
		shown := p.DeepCopy()
		shown.Status.Phase = phase
		if err := r.Publish(shown, time.Time{}, false); err != nil {
			t.Fatal(err)
		}
		select {
		case <-r.Changed():
			changed = true
		default:
		}
		return r.Recorded().Pods[pod.KeyOf(p)].Ended, changed
	}
	set(pod.Running)
	if ended, _ := publish(v1.PodRunning); ended {
		t.Error("a pod that runs has ended")
	}
	if ended, _ := publish(v1.PodSucceeded); ended {
		t.Error("an end that is not recorded counts")
	}
	set(pod.Exited)
	if ended, changed := publish(v1.PodSucceeded); !ended || !changed {
		t.Errorf("a recorded end: %v, changed %v", ended, changed)
	}
	// Another program has removed the first instance while it ran.
	set(pod.Running, pod.Exited)
	if ended, _ := publish(v1.PodSucceeded); ended {
		t.Error("a pod has ended of which an instance may run")
	}
	if err := store.Update(p.UID, func(c *checkpoint.Checkpoint) { c.DropSandbox("s") }); err != nil {
		t.Fatal(err)
	}
	if ended, changed := publish(v1.PodSucceeded); !ended || !changed {
		t.Errorf("an end without a sandbox: %v, changed %v", ended, changed)
	}
}
