package containerd_test

import (
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

func savedPod(uid pod.UID) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-node", UID: uid}}
}

// put writes a file and the directories above it.
func put(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestRemoveDataStaysInside(t *testing.T) {
	r := connect(t, daemontest.Embedded(t))
	p, other := savedPod("uid-1"), savedPod("uid-2")
	for _, p := range []*v1.Pod{p, other} {
		if err := r.SavePod(p, "serve"); err != nil {
			t.Fatal(err)
		}
	}
	outside := t.TempDir()
	put(t, outside+"/precious")
	put(t, r.Dirs.EmptyDir(p.UID, "data")+"/deep/er/file")
	put(t, r.Dirs.ContainerLog(pod.KeyOf(p), p.UID, "main", 0))
	put(t, r.Dirs.ContainerLog(pod.KeyOf(other), other.UID, "main", 0))
	for _, link := range []string{r.Dirs.EmptyDir(p.UID, "data") + "/out", r.Dirs.PodLogs(pod.KeyOf(p), p.UID) + "/out"} {
		if err := os.Symlink(outside, link); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.RemoveData(t.Context(), pod.KeyOf(p), p.UID); err != nil {
		t.Fatal(err)
	}
	if exists(r.Dirs.Pod(p.UID)) || exists(r.Dirs.PodLogs(pod.KeyOf(p), p.UID)) {
		t.Error("not all was removed")
	}
	if !exists(outside + "/precious") {
		t.Error("a link was followed")
	}
	if !exists(r.Dirs.Manifest(other.UID)) || !exists(r.Dirs.ContainerLog(pod.KeyOf(other), other.UID, "main", 0)) {
		t.Error("another revision's data were removed")
	}
}

// TestRemoveDataOfLink: the pod's directory itself is a link to somewhere else.
func TestRemoveDataOfLink(t *testing.T) {
	r := connect(t, daemontest.Embedded(t))
	outside := t.TempDir()
	put(t, outside+"/precious")
	if err := os.MkdirAll(r.Dirs.Pods(), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, r.Dirs.Pod("uid-1")); err != nil {
		t.Fatal(err)
	}
	if err := r.RemoveData(t.Context(), pod.Key{Namespace: "default", Name: "web"}, "uid-1"); err != nil {
		t.Error(err)
	}
	if !exists(outside+"/precious") || exists(r.Dirs.Pod("uid-1")) {
		t.Error("the link was followed, or is still there")
	}
}

func TestRemoveDataRefusesMounts(t *testing.T) {
	r := connect(t, daemontest.Embedded(t))
	p := savedPod("uid-1")
	if err := r.SavePod(p, "serve"); err != nil {
		t.Fatal(err)
	}
	volume, outside := r.Dirs.EmptyDir(p.UID, "data"), t.TempDir()
	put(t, outside+"/precious")
	put(t, r.Dirs.Etc(p.UID)+"/hosts")
	if err := os.MkdirAll(volume, 0o755); err != nil {
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
	err := r.RemoveData(t.Context(), pod.KeyOf(p), p.UID)
	if err == nil || !strings.Contains(err.Error(), volume+" is mounted") {
		t.Errorf("error %v", err)
	}
	if !exists(outside+"/precious") || !exists(r.Dirs.Etc(p.UID)+"/hosts") || !exists(r.Dirs.Manifest(p.UID)) {
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
	put(t, r.Dirs.Root+"/precious")
	for _, uid := range []pod.UID{"", ".", "..", "../..", "a/b", "/", "a\x00b"} {
		if err := r.SavePod(savedPod(uid), "serve"); err == nil {
			t.Errorf("%q was saved", uid)
		}
		if _, err := r.LoadPod(uid); err == nil {
			t.Errorf("%q was loaded", uid)
		}
		if err := r.RemoveData(t.Context(), pod.Key{Namespace: "default", Name: "web"}, uid); err == nil {
			t.Errorf("%q was removed", uid)
		}
	}
	if !exists(r.Dirs.Root + "/precious") {
		t.Error("something was removed")
	}
}

// TestStrayDirectories: what is not podrun's is neither listed nor in the way.
func TestStrayDirectories(t *testing.T) {
	r := connect(t, daemontest.Embedded(t))
	put(t, r.Dirs.Pods()+"/file")
	put(t, r.Dirs.Pods()+"/lost+found/file")
	put(t, r.Dirs.Manifest("garbage")) // is no JSON
	if all, err := r.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
}
