package stats

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	kubelet "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/stats/disk"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/test"
)

// twoClaims returns running pods with a claim each, whose directories are those returned by dir.
func twoClaims() (pods []v1.Pod, dir func(p *v1.Pod, v *v1.Volume) string) {
	pods = []v1.Pod{stored(), stored()}
	pods[1].Name, pods[1].UID = "other-n", "u2"
	return pods, func(p *v1.Pod, _ *v1.Volume) string { return "/" + string(p.UID) }
}

func claimsIn(s *kubelet.Summary) (of []string) {
	for _, p := range s.Pods {
		for _, v := range p.VolumeStats {
			if v.PVCRef != nil {
				of = append(of, p.PodRef.Name)
			}
		}
	}
	return of
}

// TestClaimThatHangs: a claim that is not measured in time is left out, no later request waits for it, and it is measured
// again when it has answered.
func TestClaimThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answers, begun := make(chan struct{}), 0
		w := &world{usage: disk.Usage{Roots: map[string]pod.Space{"a": {Bytes: 10}}}}
		o := w.options()
		pods, dir := twoClaims()
		o.Disks.Dir = dir
		root := o.Disks.FS
		o.Disks.FS = func(path string) (sys.FS, error) {
			if strings.HasPrefix(path, "/u") {
				return sys.FS{Capacity: 1}, nil
			}
			return root(path)
		}
		o.Disks.Size = func(_ context.Context, dir string) (pod.Space, error) {
			if dir == "/u1" {
				begun++
				<-answers
			}
			return pod.Space{Bytes: 1}, nil
		}
		s := New(o)
		for n, wait := range []time.Duration{measuringTime, 0, 0} {
			begin := time.Now()
			got, err := s.Whole(t.Context(), pods, begin)
			if took := time.Since(begin); took != wait || err == nil || !strings.Contains(err.Error(), "/u1 has not ended yet") {
				t.Errorf("request %d: %v after %s", n, err, took)
			}
			if of := strings.Join(claimsIn(got), " "); of != "other-n" || *got.Pods[0].Containers[0].Rootfs.UsedBytes != 10 {
				t.Errorf("request %d: claims of %s", n, of)
			}
			time.Sleep(measuredFor)
		}
		close(answers)
		time.Sleep(measuredFor)
		got, err := s.Whole(t.Context(), pods, time.Now())
		if of := strings.Join(claimsIn(got), " "); err != nil || of != "web-n other-n" || begun != 2 {
			t.Errorf("when it answers: claims of %s, begun %d times, %v", of, begun, err)
		}
	})
}

// TestClaimOfFileSystemThatHangs: a request is answered although a real file system of a claim is not.
func TestClaimOfFileSystemThatHangs(t *testing.T) {
	at := t.TempDir()
	end := test.HangingMount(t, at)
	o := (&world{}).options()
	o.Disks.Dir, o.Disks.Size = func(*v1.Pod, *v1.Volume) string { return at }, disk.Size
	root := o.Disks.FS
	o.Disks.FS = func(path string) (sys.FS, error) {
		if path == at {
			return sys.ReadFS(path)
		}
		return root(path)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	answered := make(chan error, 1)
	go func() {
		got, err := New(o).Whole(ctx, []v1.Pod{stored()}, time.Now())
		if len(claimsIn(got)) > 0 {
			err = errors.New("the claim is measured")
		}
		answered <- err
	}()
	select {
	case err := <-answered:
		if err == nil || !strings.Contains(err.Error(), "has not ended yet") {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("it waits for the claim")
	}
	end()
}

// TestLargeClaimStays: a claim that takes longer than a request now and then has its former figure then.
func TestLargeClaimStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		o := w.options()
		o.Disks.Dir = func(*v1.Pod, *v1.Volume) string { return "/u1" }
		o.Disks.FS = func(string) (sys.FS, error) { return sys.FS{Capacity: 1}, nil }
		var takes atomic.Int64
		takes.Store(int64(4 * time.Second))
		o.Disks.Size = func(ctx context.Context, _ string) (pod.Space, error) {
			err := sys.Sleep(ctx, time.Duration(takes.Load()))
			return pod.Space{Bytes: 1}, err
		}
		s := New(o)
		for n := range 6 {
			got, err := s.Whole(t.Context(), []v1.Pod{stored()}, time.Now())
			if len(claimsIn(got)) != 1 {
				t.Errorf("request %d: no claim, %v", n, err)
			}
			time.Sleep(measuredFor)
			takes.Store(int64(10*time.Second) - takes.Load())
		}
	})
}
