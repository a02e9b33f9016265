package stats

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/stats/disk"
)

// TestPodThatIsTooLarge: a pod that cannot be measured in time keeps the others from being measured once; what is not
// measured is left out, and later keeps its former measurement.
func TestPodThatIsTooLarge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := (&world{}).options()
		pods, _ := twoClaims()
		request, large := 0, true // the first pod
		o.Disks.Usage = func(ctx context.Context, p *v1.Pod) (disk.Usage, error) {
			if p.UID == pods[0].UID && large {
				<-ctx.Done()
				return disk.Usage{Roots: map[string]pod.Space{"a": {}}}, ctx.Err()
			}
			return disk.Usage{Roots: map[string]pod.Space{"a": {Bytes: int64(request)}}}, nil
		}
		s := New(o)
		for n, want := range [][2]int{{0, 0}, {0, 1}, {0, 2}, {3, 3}, {3, 3}, {3, 5}} {
			request, large = n, n != 3
			got, err := s.Whole(t.Context(), pods, time.Now())
			if (err != nil) != large || err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("request %d: %v", n, err)
			}
			for i, want := range want {
				p := got.Pods[i]
				switch root := p.Containers[0].Rootfs; {
				case want == 0 && (root != nil || p.EphemeralStorage != nil):
					t.Errorf("request %d: %s is shown: %+v", n, p.PodRef.Name, root)
				case want != 0 && (root == nil || *root.UsedBytes != uint64(want)):
					t.Errorf("request %d: %s has %+v, not %d", n, p.PodRef.Name, root, want)
				}
			}
			if *got.Node.Runtime.ImageFs.UsedBytes != 70 {
				t.Errorf("request %d: the images are not measured", n)
			}
			time.Sleep(measuredFor)
		}
	})
}
