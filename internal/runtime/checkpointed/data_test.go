package checkpointed

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/test"
)

// noEngine is an engine that has nothing of any pod.
type noEngine struct{ runtime.Driver }

func (noEngine) RemovePod(context.Context, pod.Key, pod.UID) error                   { return nil }
func (noEngine) Sweep(context.Context, func(sandboxID string) bool) error            { return nil }
func (noEngine) ListContainers(context.Context) (map[pod.Key][]pod.Container, error) { return nil, nil }

// onDisk returns a Runtime in its own directories.
func onDisk(t *testing.T) *Runtime {
	dir := t.TempDir()
	dirs := layout.Dirs{Root: dir + "/root", Run: dir + "/run", Log: dir + "/log"}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	return New(Options{
		Driver: noEngine{}, Store: checkpoint.NewStore(dirs, log), Boot: func() string { return "boot" }, Dirs: dirs, Log: log,
	})
}

func savedPod(t *testing.T, r *Runtime, uid pod.UID) *v1.Pod {
	t.Helper()
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-node", UID: uid}}
	if err := r.SavePod(p, "serve"); err != nil {
		t.Fatal(err)
	}
	return p
}

// put writes a file and creates the directories above it.
func put(t *testing.T, path string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestRemoveDataStaysInside(t *testing.T) {
	t.Parallel()
	r := onDisk(t)
	p, other, dirs := savedPod(t, r, "uid-1"), savedPod(t, r, "uid-2"), r.o.Dirs
	outside := t.TempDir()
	put(t, outside+"/precious")
	put(t, dirs.Revision(p.UID).EmptyDir("data")+"/deep/er/file")
	put(t, dirs.ContainerLog(pod.KeyOf(p), p.UID, "main", 0))
	put(t, dirs.ContainerLog(pod.KeyOf(other), other.UID, "main", 0))
	for _, link := range []string{dirs.Revision(p.UID).EmptyDir("data") + "/out", dirs.PodLogs(pod.KeyOf(p), p.UID) + "/out"} {
		if err := os.Symlink(outside, link); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.RemoveData(t.Context(), pod.KeyOf(p), p.UID); err != nil {
		t.Fatal(err)
	}
	if exists(dirs.Pod(p.UID)) || exists(dirs.PodLogs(pod.KeyOf(p), p.UID)) {
		t.Error("not all was removed")
	}
	if !exists(outside + "/precious") {
		t.Error("a link was followed")
	}
	if !exists(dirs.Revision(other.UID).Checkpoint()) || !exists(dirs.ContainerLog(pod.KeyOf(other), other.UID, "main", 0)) {
		t.Error("another revision's data were removed")
	}
}

// TestRemoveEmptyDirs: only those go, and nothing on which something is mounted.
func TestRemoveEmptyDirs(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	r := onDisk(t)
	p := savedPod(t, r, "uid-1")
	dirs := r.o.Dirs.Revision(p.UID)
	image, own := dirs.Volume(layout.KindImage, "i"), dirs.EmptyDir("data")
	put(t, own+"/file")
	put(t, image+"/file")
	test.Must(t, unix.Mount("none", own, "tmpfs", 0, ""))
	t.Cleanup(func() { _ = unix.Unmount(own, 0) })
	if err := r.RemoveEmptyDirs(t.Context(), p.UID); err == nil {
		t.Error("something is mounted there")
	}
	test.Must(t, unix.Unmount(own, 0))
	test.Must(t, r.RemoveEmptyDirs(t.Context(), p.UID))
	if exists(own) || !exists(image+"/file") || !exists(dirs.Checkpoint()) {
		t.Errorf("there is the volume: %t, another's: %t, the checkpoint: %t", exists(own), exists(image+"/file"), exists(dirs.Checkpoint()))
	}
	test.Must(t, r.RemoveEmptyDirs(t.Context(), p.UID)) // there are none
}

// TestRemoveDataOfLink removes data where the pod's directory itself is a symbolic link to another
// directory.
func TestRemoveDataOfLink(t *testing.T) {
	t.Parallel()
	r := onDisk(t)
	outside := t.TempDir()
	put(t, outside+"/precious")
	if err := os.MkdirAll(r.o.Dirs.Pods(), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, r.o.Dirs.Pod("uid-1")); err != nil {
		t.Fatal(err)
	}
	if err := r.RemoveData(t.Context(), pod.Key{Namespace: "default", Name: "web"}, "uid-1"); err != nil {
		t.Error(err)
	}
	if !exists(outside+"/precious") || exists(r.o.Dirs.Pod("uid-1")) {
		t.Error("the link was followed, or is still there")
	}
}

func TestUIDsThatLeadElsewhere(t *testing.T) {
	t.Parallel()
	r := onDisk(t)
	put(t, r.o.Dirs.Root+"/precious")
	for _, uid := range []pod.UID{"", ".", "..", "../..", "a/b", "/", "a\x00b"} {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-node", UID: uid}}
		if err := r.SavePod(p, "serve"); err == nil {
			t.Errorf("%q was saved", uid)
		}
		if _, err := r.LoadPod(uid); err == nil {
			t.Errorf("%q was loaded", uid)
		}
		if err := r.RemoveData(t.Context(), pod.Key{Namespace: "default", Name: "web"}, uid); err == nil {
			t.Errorf("%q was removed", uid)
		}
		if err := r.Note(uid, "id", pod.Notes{}); err == nil {
			t.Errorf("the course of an instance of %q was noted down", uid)
		}
	}
	if !exists(r.o.Dirs.Root + "/precious") {
		t.Error("something was removed")
	}
}

// TestStrayDirectories checks that directories that are not podrun's are neither listed nor an
// obstacle.
func TestStrayDirectories(t *testing.T) {
	t.Parallel()
	r := onDisk(t)
	put(t, r.o.Dirs.Pods()+"/file")
	put(t, r.o.Dirs.Pods()+"/lost+found/file")
	put(t, r.o.Dirs.Revision("garbage").Checkpoint()) // is no JSON
	if all, err := r.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestWhatIsCutOffIsSwept checks that a revision's directory whose creation or removal was
// interrupted does not count as a revision, and that a podrun removes it when it starts.
func TestWhatIsCutOffIsSwept(t *testing.T) {
	t.Parallel()
	r := onDisk(t)
	p := savedPod(t, r, "uid-1")
	left := []string{r.o.Dirs.Pods() + "/.coming-uid-2", r.o.Dirs.Pods() + "/.going-uid-3"}
	for _, dir := range left {
		put(t, dir+"/checkpoint.json")
	}
	all, err := r.List(t.Context())
	if err != nil || len(all) != 1 || all[0].Key != pod.KeyOf(p) || all[0].Owner != "serve" {
		t.Errorf("%+v, %v", all, err)
	}
	if err := r.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	if exists(left[0]) || exists(left[1]) || !exists(r.o.Dirs.Revision(p.UID).Checkpoint()) {
		t.Error("too little was removed, or too much")
	}
}

// TestRetainedLogs: the logs of one revision stay when it is removed, and go when it runs again; those of others go
// with it.
func TestRetainedLogs(t *testing.T) {
	t.Parallel()
	r := onDisk(t)
	stays, goes := savedPod(t, r, "uid-1"), savedPod(t, r, "uid-2")
	r.RetainLogs(stays.UID)
	log := func(p *v1.Pod) string { return r.o.Dirs.ContainerLog(pod.KeyOf(p), p.UID, "main", 0) }
	for _, p := range []*v1.Pod{stays, goes} {
		put(t, log(p))
		if err := r.RemoveData(t.Context(), pod.KeyOf(p), p.UID); err != nil {
			t.Fatal(err)
		}
	}
	if !exists(log(stays)) || exists(log(goes)) {
		t.Errorf("retained: %t; of another revision: %t", exists(log(stays)), exists(log(goes)))
	}
	if err := r.SavePod(stays, "once"); err != nil || exists(log(stays)) {
		t.Errorf("when it runs again: %v, the log is there: %t", err, exists(log(stays)))
	}
	put(t, log(stays))
	if err := r.SavePod(stays, "once"); err != nil || !exists(log(stays)) {
		t.Errorf("when it is saved again: %v, the log is there: %t", err, exists(log(stays)))
	}
}

// TestRetainedLogsBehindALink: others may be able to put a link in the place of a pod's log directory. The time of what
// it leads to does not change.
func TestRetainedLogsBehindALink(t *testing.T) {
	t.Parallel()
	r := onDisk(t)
	r.o.KeepLogs = true
	p := savedPod(t, r, "uid-1")
	elsewhere, long := t.TempDir(), time.Now().Add(-time.Hour).Truncate(time.Second)
	link := r.o.Dirs.PodLogs(pod.KeyOf(p), p.UID)
	err := errors.Join(os.Chtimes(elsewhere, long, long), os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink(elsewhere, link),
		r.RemoveData(t.Context(), pod.KeyOf(p), p.UID))
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(elsewhere); err != nil || !info.ModTime().Equal(long) {
		t.Errorf("%v, %v", info.ModTime(), err)
	}
}

// TestKeptLogs checks that KeepLogs leaves a revision's logs in place, and that their retention
// begins with the end of the revision.
func TestKeptLogs(t *testing.T) {
	t.Parallel()
	r := onDisk(t)
	r.o.KeepLogs = true
	p := savedPod(t, r, "uid-1")
	log, dir := r.o.Dirs.ContainerLog(pod.KeyOf(p), p.UID, "main", 0), r.o.Dirs.PodLogs(pod.KeyOf(p), p.UID)
	put(t, log)
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(dir, long, long); err != nil {
		t.Fatal(err)
	}
	if err := r.RemoveData(t.Context(), pod.KeyOf(p), p.UID); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !exists(log) || !info.ModTime().After(long) || exists(r.o.Dirs.Pod(p.UID)) {
		t.Errorf("log there: %t, its time: %s, revision there: %t", exists(log), info.ModTime(), exists(r.o.Dirs.Pod(p.UID)))
	}
}
