package history

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// TestSize: an hour of a container takes at most 2 KB.
func TestSize(t *testing.T) {
	if size := unsafe.Sizeof(buffer{}) + unsafe.Sizeof(Of{}) + 100; size > 2000 {
		t.Errorf("%d bytes", size)
	}
	if Every*Kept != time.Hour {
		t.Error(Every * Kept)
	}
}

func TestCodes(t *testing.T) {
	for range 1000 {
		v := rand.Uint64() >> rand.IntN(64) & (1<<50 - 1)
		if got := encode(v).value(); math.Abs(got-float64(v)) > float64(v)/1024 || got < 0 {
			t.Fatalf("%d became %f", v, got)
		}
	}
	for _, v := range []uint64{0, 1, 1023, 1024, 2047} {
		if got := encode(v).value(); got != float64(v) {
			t.Errorf("%d became %f", v, got)
		}
	}
	if got := encode(math.MaxUint64).value(); got < 1<<62 {
		t.Errorf("the largest became %g", got)
	}
	if code(0).value() >= 0 {
		t.Error("none has a value")
	}
}

// machine is what is used: by the machine 0.5 processors, by the container of a pod 0.25 as long as that is there.
type machine struct {
	pod, fails atomic.Bool
	asked      atomic.Int64
	memory     uint64
}

func (m *machine) usage(context.Context) (*kubelet.Summary, error) {
	if m.asked.Add(1); m.fails.Load() {
		return nil, errors.New("it fails")
	}
	now := time.Now()
	of := func(part float64) (*kubelet.CPUStats, *kubelet.MemoryStats) {
		total := uint64(float64(now.UnixNano()%1e18) * part)
		return &kubelet.CPUStats{Time: metav1.Time{Time: now}, UsageCoreNanoSeconds: &total}, &kubelet.MemoryStats{WorkingSetBytes: &m.memory}
	}
	out := &kubelet.Summary{}
	out.Node.CPU, out.Node.Memory = of(0.5)
	if m.pod.Load() {
		c := kubelet.ContainerStats{Name: "c"}
		c.CPU, c.Memory = of(0.25)
		out.Pods = []kubelet.PodStats{{PodRef: kubelet.PodReference{Namespace: "n", Name: "p", UID: "u"}, Containers: []kubelet.ContainerStats{c}}}
	}
	return out, nil
}

func all(Of) bool { return true }

func TestSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		m := &machine{memory: 3 << 20}
		m.pod.Store(true)
		h := New(Options{Usage: m.usage})
		done := make(chan struct{})
		go func() { defer close(done); h.Run(ctx) }()
		time.Sleep(time.Hour)
		if n := m.asked.Load(); n > 0 {
			t.Fatalf("asked %d times although nobody looks", n)
		}
		if got, at := h.Samples(all); len(got) > 0 || !at.IsZero() {
			t.Errorf("at first: %v, %s", got, at)
		}
		time.Sleep(time.Minute)
		got, at := h.Samples(all)
		if len(got) != 2 || got[0].Of != (Of{}) || got[1].Of != (Of{"n", "p", "u", "c"}) || time.Since(at) > Every {
			t.Fatalf("after a minute: %v, %s", got, at)
		}
		if c := got[1]; len(c.CPU) < 6 || len(c.CPU) > 7 || len(c.Memory) != len(c.CPU) || c.CPU[0] >= 0 || c.Memory[0] != 3<<20 {
			t.Errorf("after a minute: %v", c)
		}
		for i, s := range got {
			if last := s.CPU[len(s.CPU)-1]; math.Abs(last-[]float64{500, 250}[i]) > 2 {
				t.Errorf("CPU of %v: %f", s.Of, last)
			}
		}
		// The pod is gone, and nobody looks.
		m.pod.Store(false)
		time.Sleep(10 * time.Minute)
		asked := m.asked.Load()
		time.Sleep(10 * time.Minute)
		if now := m.asked.Load(); now != asked || asked > int64((time.Minute+longer)/Every)+2 {
			t.Errorf("asked %d times, and then %d", asked, now-asked)
		}
		_, _ = h.Samples(all)
		time.Sleep(time.Minute)
		if got, _ = h.Samples(func(of Of) bool { return of.Pod == "p" }); len(got) != 1 || got[0].CPU[len(got[0].CPU)-1] >= 0 {
			t.Errorf("the pod that is gone: %v", got)
		}
		// What fails is missing.
		m.fails.Store(true)
		time.Sleep(time.Minute)
		m.fails.Store(false)
		time.Sleep(time.Minute)
		got, _ = h.Samples(all)
		missing := 0
		for _, v := range got[0].Memory[len(got[0].Memory)-12:] {
			if v < 0 {
				missing++
			}
		}
		if missing < 5 || missing > 7 {
			t.Errorf("%d are missing: %v", missing, got[0].Memory)
		}
		for range 70 {
			time.Sleep(time.Minute)
			got, _ = h.Samples(all)
		}
		if len(got) != 1 || len(got[0].CPU) != Kept {
			t.Errorf("after an hour: %d series, %d samples", len(got), len(got[0].CPU))
		}
		cancel()
		<-done
	})
}

// TestClockSetBack: samples of a time that has not come yet are forgotten.
func TestClockSetBack(t *testing.T) {
	r := &buffer{}
	at := time.Unix(1e9, 0)
	r.put(1000, total{1e9, at}, 1<<20)
	r.put(900, total{2e9, at.Add(Every)}, 2<<20)
	if got := r.series(Of{}, 1000); len(got.CPU) > 101 || got.Memory[0] != 2<<20 {
		t.Errorf("%v", got)
	}
}

// TestAlways: samples are taken although nobody looks.
func TestAlways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		m := &machine{}
		h := New(Options{Usage: m.usage, Always: true})
		done := make(chan struct{})
		go func() { defer close(done); h.Run(ctx) }()
		time.Sleep(time.Hour)
		if n := m.asked.Load(); n < Kept-1 || n > Kept+2 {
			t.Errorf("asked %d times", n)
		}
		cancel()
		<-done
	})
}
