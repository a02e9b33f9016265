package checkpointed_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/checkpointed"
	"podrun.io/podrun/internal/runtime/fake"
)

// indexed is the fake engine with an index by pod, so that inspecting one pod does not walk over
// all.
type indexed struct {
	fake.Driver
	byPod map[pod.Key][]pod.Container
}

// InspectContainers implements runtime.Driver.
func (d indexed) InspectContainers(_ context.Context, key pod.Key, _ []string) ([]pod.Container, error) {
	return d.byPod[key], nil
}

func benchPod(i int) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("p", i), UID: pod.UID(fmt.Sprint("u", i))},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "web:1"}}},
	}
}

// onManyPods returns a Runtime with checkpoints on disk and n running pods.
func onManyPods(b *testing.B, n int) *checkpointed.Runtime {
	dirs := layout.Dirs{Root: b.TempDir(), Run: b.TempDir(), Log: b.TempDir()}
	e := fake.NewEngine("boot")
	e.AddImage("web:1", fake.Script{})
	d := indexed{e.Driver(), map[pod.Key][]pod.Container{}}
	r := checkpointed.New(checkpointed.Options{
		Driver: d, Store: checkpoint.NewStore(dirs, slog.New(slog.DiscardHandler)), Boot: e.Boot, Dirs: dirs,
		Log: slog.New(slog.DiscardHandler),
	})
	for i := range n {
		p := benchPod(i)
		startPod(b, r, p)
	}
	all, err := e.Driver().ListContainers(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for key, of := range all {
		d.byPod[key] = of
	}
	return r
}

// BenchmarkInspect inspects one pod among others: the cost does not depend on the number of pods.
func BenchmarkInspect(b *testing.B) {
	for _, n := range []int{10, 1000, 3000} {
		b.Run(fmt.Sprint(n, " pods"), func(b *testing.B) {
			r, i := onManyPods(b, n), 0
			for b.Loop() {
				i++
				o, err := r.Inspect(b.Context(), pod.KeyOf(benchPod(i%n)))
				if err != nil || len(o.Containers) != 1 || o.Containers[0].State != pod.Running {
					b.Fatalf("%+v, %v", o, err)
				}
			}
		})
	}
}

// BenchmarkList lists all pods.
func BenchmarkList(b *testing.B) {
	for _, n := range []int{10, 1000, 3000} {
		b.Run(fmt.Sprint(n, " pods"), func(b *testing.B) {
			r := onManyPods(b, n)
			for b.Loop() {
				if all, err := r.List(b.Context()); err != nil || len(all) != n {
					b.Fatalf("%d, %v", len(all), err)
				}
			}
		})
	}
}

// BenchmarkListGone lists pods whose instances another program has removed: each of them is
// inspected.
func BenchmarkListGone(b *testing.B) {
	const n = 1000
	r := onManyPods(b, n)
	all, err := r.List(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	gone := checkpointed.New(checkpointed.Options{
		Driver: indexed{fake.NewEngine("boot").Driver(), nil}, Store: r.Store(), Boot: func() string { return "boot" },
		Log: slog.New(slog.DiscardHandler),
	})
	for b.Loop() {
		if got, err := gone.List(b.Context()); err != nil || len(got) != len(all) {
			b.Fatalf("%d, %v", len(got), err)
		}
	}
}

// BenchmarkUpdate changes a checkpoint whose manifest is large.
func BenchmarkUpdate(b *testing.B) {
	for name, dirs := range map[string]layout.Dirs{"disk": {Root: b.TempDir()}, "memory": {}} {
		b.Run(name, func(b *testing.B) {
			s := checkpoint.NewStoreOn(checkpoint.NewMemory(nil), slog.New(slog.DiscardHandler))
			if dirs.Root != "" {
				s = checkpoint.NewStore(dirs, slog.New(slog.DiscardHandler))
			}
			p := benchPod(0)
			for i := range 100 {
				p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, v1.EnvVar{Name: fmt.Sprint("NAME_", i), Value: strings.Repeat("x", 170)})
			}
			if err := s.Create(p, "serve"); err != nil {
				b.Fatal(err)
			}
			for i := 0; b.Loop(); i++ {
				if err := s.Update(p.UID, func(c *checkpoint.Checkpoint) { c.Evicted = fmt.Sprint(i) }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFind finds the checkpoint that names an instance among many.
func BenchmarkFind(b *testing.B) {
	const n = 5000
	s := checkpoint.NewStoreOn(checkpoint.NewMemory(nil), slog.New(slog.DiscardHandler))
	for i := range n {
		p := benchPod(i)
		c := &checkpoint.Checkpoint{Owner: "serve", Pod: p, Instances: []pod.Container{{ID: fmt.Sprint("c", i)}}}
		if err := s.Restore(c); err != nil {
			b.Fatal(err)
		}
	}
	for i := 0; b.Loop(); i++ {
		if s.OfInstance(fmt.Sprint("c", i%n)) == nil {
			b.Fatal("not found")
		}
	}
}

// startPod creates a pod's sandbox and starts its container.
func startPod(t testing.TB, r *checkpointed.Runtime, p *v1.Pod) {
	t.Helper()
	if err := r.SavePod(p, "serve"); err != nil {
		t.Fatal(err)
	}
	if err := r.CreateSandbox(t.Context(), p, 0); err != nil {
		t.Fatal(err)
	}
	c, err := r.Store().Get(p.UID)
	if err != nil {
		t.Fatal(err)
	}
	start := runtime.Start{Pod: p, Container: &p.Spec.Containers[0], Sandbox: c.Sandboxes[0], Image: pod.Image{Name: "web:1"}}
	if err := r.StartContainer(t.Context(), start); err != nil {
		t.Fatal(err)
	}
}
