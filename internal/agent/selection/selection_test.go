package selection

import (
	"errors"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/fake"
)

// TestSelection: of the chosen pods, those stay that another process owns or a serve is about to own.
func TestSelection(t *testing.T) {
	t.Parallel()
	r := fake.New("boot")
	for name, by := range map[string]string{"free": owner.Once, "owned": owner.Once, "served": owner.Serve} {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: pod.UID(name)}}
		if err := errors.Join(r.SavePod(p, by), r.CreateSandbox(t.Context(), p, 0)); err != nil {
			t.Fatal(err)
		}
	}
	key := func(name string) pod.Key { return pod.Key{Namespace: "default", Name: name} }
	dirs := layout.Dirs{Run: t.TempDir()}
	mine, other := owner.NewLocks(dirs, owner.Down), owner.NewLocks(dirs, owner.Once)
	defer mine.Close()
	defer other.Close()
	if err := other.AcquireAll(t.Context(), key("owned")); err != nil {
		t.Fatal(err)
	}
	var offered []*v1.Pod
	s, err := Choose(t.Context(), r, []pod.Key{key("stray"), key("free")}, func(pods []*v1.Pod) ([]*v1.Pod, error) {
		offered = pods
		return pods, nil
	})
	if err != nil || len(offered) != 4 || len(s.Pods) != 4 || s.Err() != nil {
		t.Fatalf("%+v of %v, %v", s, offered, err)
	}
	refused, err := s.Acquire(t.Context(), mine, true)
	if err != nil || len(refused) != 2 || len(s.Pods) != 2 || !s.Pods[key("free")] || !s.Pods[key("stray")] {
		t.Errorf("%v, refused %v, %v", s.Pods, refused, err)
	}
	for _, err := range refused {
		if !errors.As(err, new(*owner.OwnedError)) {
			t.Errorf("refused: %v", err)
		}
	}
	if !mine.Owns(key("free")) || mine.Owns(key("owned")) || mine.Owns(key("served")) {
		t.Error("the wrong pods are owned")
	}
}

// TestInOrder: critical pods are removed last.
func TestInOrder(t *testing.T) {
	t.Parallel()
	r := fake.New("boot")
	for name, class := range map[string]string{"web": "", "driver": "system-node-critical", "dns": "system-cluster-critical", "db": ""} {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: pod.UID(name)}}
		p.Spec.PriorityClassName = class
		if err := errors.Join(r.SavePod(p, owner.Serve), r.CreateSandbox(t.Context(), p, 0)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		picks []string
		want  string
	}{
		{[]string{"web", "driver", "dns", "db"}, "db web, dns driver"}, {[]string{"web"}, "web"}, {[]string{"driver"}, "driver"}, {nil, ""},
	} {
		s, err := Choose(t.Context(), r, nil, func(pods []*v1.Pod) ([]*v1.Pod, error) {
			return slices.DeleteFunc(pods, func(p *v1.Pod) bool { return !slices.Contains(c.picks, p.Name) }), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, some := range s.InOrder() {
			var names []string
			for key := range some {
				names = append(names, key.Name)
			}
			slices.Sort(names)
			all = append(all, strings.Join(names, " "))
		}
		if got := strings.Join(all, ", "); got != c.want {
			t.Errorf("%v: %q, want %q", c.picks, got, c.want)
		}
	}
}
