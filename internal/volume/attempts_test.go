package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
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

// TestHangingFileSystem: a real file system whose server does not answer keeps neither the start of a container nor the
// removal of its pod.
func TestHangingFileSystem(t *testing.T) {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("needs FUSE: %v", err)
	}
	server := os.NewFile(uintptr(fd), "fuse")
	defer server.Close()
	at := t.TempDir()
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)
	if err := unix.Mount("hangs", at, "fuse", 0, options); err != nil {
		t.Skipf("needs to mount: %v", err)
	}
	defer func() { _ = unix.Unmount(at, unix.MNT_DETACH|unix.MNT_FORCE) }()
	f := newFixture(t)
	p := podWith(hostPath(at, ""))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	c := mounting(v1.VolumeMount{Name: "v", MountPath: "/v", SubPath: "sub/of"})
	if _, err := f.Volumes.Setup(ctx, pod.Inside{Pod: p, Container: c}); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("got %v", err)
	}
	if err := f.Teardown(t.Context(), p.UID); err != nil {
		t.Errorf("the removal: %v", err)
	}
	// When the file system is gone, the next start is not kept by the former one.
	if err := unix.Unmount(at, unix.MNT_DETACH|unix.MNT_FORCE); err != nil {
		t.Fatal(err)
	}
	server.Close()
	if _, err := f.Volumes.Setup(t.Context(), pod.Inside{Pod: p, Container: c}); err != nil {
		t.Errorf("when it is gone: %v", err)
	}
	if err := f.Teardown(t.Context(), p.UID); err != nil {
		t.Error(err)
	}
}
