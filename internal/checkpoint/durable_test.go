package checkpoint

import (
	"log/slog"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// TestResultSurvivesPowerCut: the exit of a container that does not run again is there after a power cut, and so is what
// is saved before and after it: a state that is not durable may take the place of the one with the result before its own
// contents are on disk.
func TestResultSurvivesPowerCut(t *testing.T) {
	t.Parallel()
	for policy, survives := range map[v1.RestartPolicy]bool{
		v1.RestartPolicyNever: true, v1.RestartPolicyOnFailure: true, v1.RestartPolicyAlways: false,
		"Always, Never": true, "Always, OnFailure": true, "Never, Always": false, // the pod's, and its container's own
	} {
		disk := NewMemory(nil)
		s := NewStoreOn(disk, slog.New(slog.DiscardHandler))
		p := manifest("job", "u1")
		ofPod, own, _ := strings.Cut(string(policy), ", ")
		p.Spec.RestartPolicy = v1.RestartPolicy(ofPod)
		p.Spec.Containers = []v1.Container{{Name: "a"}}
		if own != "" {
			p.Spec.Containers[0].RestartPolicy = new(v1.ContainerRestartPolicy(own))
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(policy, err)
			}
		}
		must(s.Create(p, "serve"))
		must(s.Update("u1", func(c *Checkpoint) {
			c.Instances = append(c.Instances, pod.Container{Name: "a", ID: "i1", State: pod.Running})
		}))
		disk.Sync()
		must(s.Update("u1", func(c *Checkpoint) { c.Instance("i1").State = pod.Exited }))
		must(s.Update("u1", func(c *Checkpoint) { c.Evicted = "later" }))
		must(s.Create(p, "once"))
		disk.PowerCut(func(pod.UID) bool { return true })
		c, err := NewStoreOn(disk, slog.New(slog.DiscardHandler)).Get("u1")
		must(err)
		exited, evicted, owned := c.Instance("i1").State == pod.Exited, c.Evicted != "", c.Owner == "once"
		if exited != survives || evicted != survives || owned != survives {
			t.Errorf("%s: the exit survives: %t, what came later: %t, %t", policy, exited, evicted, owned)
		}
	}
}

// TestStartSurvivesPowerCut: a container that must not run again, whatever it did, is recorded durably before it starts.
// Others run again.
func TestStartSurvivesPowerCut(t *testing.T) {
	t.Parallel()
	for policy, survives := range map[v1.RestartPolicy]bool{
		v1.RestartPolicyNever: true, v1.RestartPolicyOnFailure: false, v1.RestartPolicyAlways: false,
	} {
		disk := NewMemory(nil)
		s := NewStoreOn(disk, slog.New(slog.DiscardHandler))
		p := manifest("job", "u1")
		p.Spec.RestartPolicy = policy
		if err := s.Create(p, "serve"); err != nil {
			t.Fatal(err)
		}
		disk.Sync()
		for _, state := range []pod.State{pod.Created, pod.Running} {
			if err := s.Update("u1", func(c *Checkpoint) {
				c.Instances = []pod.Container{{Name: "a", ID: "i1", State: state}}
			}); err != nil {
				t.Fatal(err)
			}
		}
		disk.PowerCut(func(pod.UID) bool { return true })
		c, err := NewStoreOn(disk, slog.New(slog.DiscardHandler)).Get("u1")
		if err != nil {
			t.Fatal(err)
		}
		if i := c.Instance("i1"); (i != nil && i.State == pod.Running) != survives {
			t.Errorf("%s: after a power cut the start is recorded: %v", policy, i)
		}
	}
}

// TestRemovalSurvivesPowerCut: what was removed does not come back.
func TestRemovalSurvivesPowerCut(t *testing.T) {
	t.Parallel()
	disk := NewMemory(nil)
	s := NewStoreOn(disk, slog.New(slog.DiscardHandler))
	if err := s.Create(manifest("job", "u1"), "serve"); err != nil {
		t.Fatal(err)
	}
	disk.Sync()
	if err := s.Remove(t.Context(), "u1"); err != nil {
		t.Fatal(err)
	}
	disk.PowerCut(func(pod.UID) bool { return true })
	if all, err := disk.List(); err != nil || len(all) > 0 {
		t.Errorf("after a power cut: %v, %v", all, err)
	}
}
