package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/fake"
)

// running returns the images of the containers that run, each with the number of the pod before it.
func running(t *testing.T, rt *fake.Runtime) string {
	t.Helper()
	seen, err := rt.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, o := range seen {
		for _, c := range o.Containers {
			if c.State == pod.Running {
				all = append(all, strings.TrimSuffix(strings.TrimPrefix(o.Key.Name, "web-"), "-n")+"="+c.Image)
			}
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// TestRecreate: with the strategy Recreate, no pod of the new template starts before all of the former one are gone,
// whatever happens to podrun meanwhile; another number of replicas stops no other pod.
func TestRecreate(t *testing.T) {
	for name, restarts := range map[string]bool{"podrun goes on": false, "podrun restarts": true} {
		t.Run(name, func(t *testing.T) {
			rollingTest(t, func(s *served, rt *fake.Runtime) {
				rt.IgnoreTerm("c") // each ends after its grace period of 5 s, unless it waits to be restarted
				put := func(replicas int, image string) { s.put(withoutPorts(rolling(replicas, image, "type: Recreate"))) }
				put(2, "v:1")
				s.start()
				s.show(time.Minute, "web-0=v:1* web-1=v:1*")
				for range 2 {
					id := s.pods()[1].Status.ContainerStatuses[0].ContainerID
					rt.Exit(strings.TrimPrefix(id, "containerd://"), 1)
					time.Sleep(2 * time.Second)
				}
				put(3, "v:2")
				steps := []string{"0=v:1"}
				for i := range 100 {
					time.Sleep(100 * time.Millisecond)
					if restarts && i > 0 && i%25 == 0 {
						s.stop()
						s.start()
					}
					if now := running(t, rt); now != steps[len(steps)-1] {
						steps = append(steps, now)
					}
				}
				steps = slices.DeleteFunc(steps, func(step string) bool { return !strings.Contains(step, "v:1") })
				if len(steps) != 1 {
					t.Errorf("beside each other: %q", steps)
				}
				s.show(0, "web-0=v:2* web-1=v:2* web-2=v:2*")
				put(1, "v:2")
				for range 50 {
					time.Sleep(100 * time.Millisecond)
					if now := running(t, rt); !strings.HasPrefix(now, "0=v:2") {
						t.Fatal(now)
					}
				}
				put(0, "v:2")
				s.show(20*time.Second, "")
				put(1, "v:3")
				s.show(10*time.Second, "web-0=v:3*")
			})
		})
	}
}
