package containerd_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/containerd/daemontest"
)

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestRemoveDataRefusesMounts(t *testing.T) {
	r := connect(t, daemontest.Embedded(t))
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-node", UID: "uid-1"}}
	if err := r.SavePod(p, "serve"); err != nil {
		t.Fatal(err)
	}
	volume, outside, hosts := r.Dirs.Revision(p.UID).EmptyDir("data"), t.TempDir(), r.Dirs.Revision(p.UID).Etc()+"/hosts"
	err := errors.Join(os.MkdirAll(volume, 0o755), os.MkdirAll(filepath.Dir(hosts), 0o755),
		os.WriteFile(outside+"/precious", nil, 0o600), os.WriteFile(hosts, nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount(outside, volume, "", syscall.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	mounted := true
	defer func() {
		if mounted {
			syscall.Unmount(volume, syscall.MNT_DETACH)
		}
	}()
	err = r.RemoveData(t.Context(), pod.KeyOf(p), p.UID)
	if err == nil || !strings.Contains(err.Error(), volume+" is mounted") {
		t.Errorf("error %v", err)
	}
	if !exists(outside+"/precious") || !exists(hosts) || !exists(r.Dirs.Revision(p.UID).Checkpoint()) {
		t.Error("something was removed")
	}
	if err := syscall.Unmount(volume, 0); err != nil {
		t.Fatal(err)
	}
	mounted = false
	if err := r.RemoveData(t.Context(), pod.KeyOf(p), p.UID); err != nil || exists(r.Dirs.Pod(p.UID)) {
		t.Errorf("unmounted: %v", err)
	}
}

func TestUIDsThatLeadElsewhere(t *testing.T) {
	r := connect(t, daemontest.Embedded(t))
	precious := r.Dirs.Root + "/precious"
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, uid := range []pod.UID{"", ".", "..", "../..", "a/b", "/", "a\x00b"} {
		if err := r.RemoveData(t.Context(), pod.Key{Namespace: "default", Name: "web"}, uid); err == nil {
			t.Errorf("%q was removed", uid)
		}
	}
	if !exists(precious) {
		t.Error("something was removed")
	}
}
