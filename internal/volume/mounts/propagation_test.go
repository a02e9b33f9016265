package mounts

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

func TestCanPropagate(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts: needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	if err := os.MkdirAll(dir+"/sub/dir", 0o755); err != nil {
		t.Fatal(err)
	}
	one, both := v1.MountPropagationHostToContainer, v1.MountPropagationBidirectional
	for _, c := range []struct {
		kind uintptr
		good []v1.MountPropagationMode
		bad  []v1.MountPropagationMode
	}{
		{unix.MS_PRIVATE, []v1.MountPropagationMode{"", v1.MountPropagationNone}, []v1.MountPropagationMode{one, both}},
		{unix.MS_SHARED, []v1.MountPropagationMode{one, both}, nil},
	} {
		if err := unix.Mount("", dir, "", c.kind, ""); err != nil {
			t.Fatal(err)
		}
		for _, p := range c.good {
			if err := errors.Join(CanPropagate(dir, p), CanPropagate(dir+"/sub/dir", p)); err != nil {
				t.Error(err)
			}
		}
		for _, p := range c.bad {
			if err := CanPropagate(dir+"/sub", p); err == nil || !strings.Contains(err.Error(), "on the mount "+dir+", which is not shared") {
				t.Errorf("%s: %v", p, err)
			}
		}
	}
}
