package reconcile

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// TestSamePodIsNotDelivered: a worker is not woken because another pod's manifest changed.
func TestSamePodIsNotDelivered(t *testing.T) {
	t.Parallel()
	woken := func(m *mailbox) bool {
		_, unread := m.read()
		select {
		case <-m.changed:
			return true
		default:
			return unread
		}
	}
	p := &v1.Pod{}
	objects := func(text string) pod.Objects {
		return pod.Objects{ConfigMaps: map[pod.Key]*v1.ConfigMap{{Name: "a"}: {Data: map[string]string{"a": text}}}}
	}
	m := newMailbox()
	for _, step := range []struct {
		what  string
		d     desiredPod
		wakes bool
	}{
		{"first", desiredPod{pod: p, objects: objects("1")}, true},
		{"again", desiredPod{pod: p, objects: objects("1")}, false},
		{"another object", desiredPod{pod: p, objects: objects("2")}, true},
		{"an error in its manifest", desiredPod{pod: p, bad: "typo", objects: objects("2")}, true},
		{"mended", desiredPod{pod: p, objects: objects("2")}, true},
		{"another manifest", desiredPod{pod: p.DeepCopy(), objects: objects("2")}, true},
		{"no manifest", desiredPod{}, true},
		{"no manifest in another set", desiredPod{}, true},
	} {
		m.put(step.d)
		if got := woken(m); got != step.wakes {
			t.Errorf("%s: woken %v", step.what, got)
		}
	}
}
