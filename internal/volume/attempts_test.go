package volume

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/test"
)

// TestAttempts: nobody waits for a file system that does not answer after the end of a context, and there is one attempt
// at a time for a pod.
func TestAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := attempts{of: map[pod.UID]chan struct{}{}}
		answers := make(chan struct{})
		hangs := func(context.Context) error { <-answers; return errors.New("late") }
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begin := time.Now()
		if err := a.do(ctx, "u1", hangs); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) > time.Minute+moment {
			t.Errorf("%v after %s", err, time.Since(begin))
		}
		// Another attempt for the pod waits for it; those of others do not.
		if err := a.do(t.Context(), "u2", func(context.Context) error { return errors.New("mine") }); err == nil || err.Error() != "mine" {
			t.Error(err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := a.do(ctx, "u1", func(context.Context) error { t.Error("two at a time"); return nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		time.AfterFunc(time.Second, func() { close(answers) })
		ran := false
		if err := a.do(t.Context(), "u1", func(context.Context) error { ran = true; return nil }); err != nil || !ran {
			t.Error(err, ran)
		}
		if len(a.of) > 0 {
			t.Errorf("left: %v", a.of)
		}
	})
}

// TestHangingFileSystem: a real file system whose server does not answer, at each place where one may be, keeps neither
// the start of a container nor the removal of its pod, and no other pod at all.
func TestHangingFileSystem(t *testing.T) {
	const target = "/pods/u1/volumes/kubernetes.io~csi/v/mount"
	for name, c := range map[string]struct {
		volume v1.Volume
		at     string // below the root directory
	}{
		"hostPath":                 {volume: hostPath("ROOT/host", ""), at: "/host"},
		"all claims":               {volume: claimed("data"), at: "/claims"},
		"the claims of namespaces": {volume: claimed("data"), at: "/claims/default"},
		"a claim":                  {volume: claimed("data"), at: "/claims/default/data"},
		"nfs":                      {volume: exported("files.example", false).Spec.Volumes[0], at: "/pods/u1/volumes/kubernetes.io~nfs/v"},
		"csi":                      {volume: v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "d"}}}, at: target},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.mounts.KindOn = func(string) (string, error) { return "nfs", nil }
			write(t, layout.CSIVolumes(f.dirs())+"/u1_v.json", fmt.Sprintf(`{"driver":"d","uid":"u1","volume":"v","target":%q,"published":true}`, f.root+target))
			if h := c.volume.HostPath; h != nil {
				h.Path = f.root + c.at
			}
			end := test.HangingMount(t, f.root+c.at)
			p := podWith(c.volume)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			within := mounting(v1.VolumeMount{Name: "v", MountPath: "/v", SubPath: "sub/of"})
			for range 2 { // the second one waits for the first
				_, err := f.Volumes.Setup(ctx, pod.Inside{Pod: p, Container: within})
				var why *runtime.ReasonError
				if !errors.As(err, &why) || why.Reason != pod.ReasonFailedMount || !strings.Contains(err.Error(), "does not answer") {
					t.Errorf("got %v", err)
				}
			}
			others := make(chan error, 1)
			go func() {
				other := podWith(emptyDir("v"))
				other.UID = "u2"
				_, err := f.Setup(t.Context(), other, mounting(mountV), pod.Sandbox{})
				others <- errors.Join(err, f.Teardown(t.Context(), "u2"), f.Teardown(t.Context(), p.UID))
			}()
			select {
			case err := <-others:
				if err != nil {
					t.Errorf("another pod, and the removal: %v", err)
				}
			case <-time.After(20 * time.Second):
				t.Error("it keeps another pod, or the removal")
			}
			// When the file system is gone, the next start is not kept by the former one.
			end()
			if _, err := f.Setup(t.Context(), podWith(emptyDir("v")), mounting(mountV), pod.Sandbox{}); err != nil {
				t.Errorf("when it is gone: %v", err)
			}
			if err := f.Teardown(t.Context(), p.UID); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestHangingEtc: a container keeps podrun from its pod's own files, by a write to one of them that does not end. That
// keeps no other pod, and neither their names.
func TestHangingEtc(t *testing.T) {
	f := newFixture(t)
	p, other := podWith(emptyDir("v")), podWith(emptyDir("v"))
	other.UID = "u2"
	test.HangingMount(t, f.dirs().Revision(p.UID).Etc())
	go func() { _ = f.RefreshHosts(p, pod.Sandbox{}) }()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := f.Setup(ctx, p, mounting(mountV), pod.Sandbox{}); err == nil {
		t.Error("its files are not written, and it starts")
	}
	others := make(chan error, 1)
	go func() {
		_, err := f.Setup(t.Context(), other, mounting(mountV), pod.Sandbox{})
		others <- errors.Join(err, f.RefreshHosts(other, pod.Sandbox{}))
	}()
	select {
	case err := <-others:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("it keeps another pod")
	}
}
