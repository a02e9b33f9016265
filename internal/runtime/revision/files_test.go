package revision

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
)

// files are those of a podrun that starts in the boot, in directories of their own.
func files(t *testing.T, boot string) *Files {
	dir := t.TempDir()
	return New(Options{
		Dirs: layout.Dirs{Root: dir + "/root", Run: dir + "/run", Log: dir + "/log"},
		Boot: boot, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
}

// next are the files of the podrun that comes after f's.
func (f *Files) next(boot string) *Files {
	o := f.o
	o.Boot = boot
	return New(o)
}

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
	t.Parallel()
	f := files(t, "boot-1")
	p, other := savedPod("uid-1"), savedPod("uid-2")
	for _, p := range []*v1.Pod{p, other} {
		if err := f.SavePod(p, "serve"); err != nil {
			t.Fatal(err)
		}
	}
	outside := t.TempDir()
	put(t, outside+"/precious")
	put(t, f.o.Dirs.EmptyDir(p.UID, "data")+"/deep/er/file")
	put(t, f.o.Dirs.ContainerLog(pod.KeyOf(p), p.UID, "main", 0))
	put(t, f.o.Dirs.ContainerLog(pod.KeyOf(other), other.UID, "main", 0))
	for _, link := range []string{f.o.Dirs.EmptyDir(p.UID, "data") + "/out", f.o.Dirs.PodLogs(pod.KeyOf(p), p.UID) + "/out"} {
		if err := os.Symlink(outside, link); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.RemoveData(t.Context(), pod.KeyOf(p), p.UID); err != nil {
		t.Fatal(err)
	}
	if exists(f.o.Dirs.Pod(p.UID)) || exists(f.o.Dirs.PodLogs(pod.KeyOf(p), p.UID)) {
		t.Error("not all was removed")
	}
	if !exists(outside + "/precious") {
		t.Error("a link was followed")
	}
	if !exists(f.o.Dirs.Manifest(other.UID)) || !exists(f.o.Dirs.ContainerLog(pod.KeyOf(other), other.UID, "main", 0)) {
		t.Error("another revision's data were removed")
	}
}

// TestRemoveDataOfLink: the pod's directory itself is a link to somewhere else.
func TestRemoveDataOfLink(t *testing.T) {
	t.Parallel()
	f := files(t, "boot-1")
	outside := t.TempDir()
	put(t, outside+"/precious")
	if err := os.MkdirAll(f.o.Dirs.Pods(), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, f.o.Dirs.Pod("uid-1")); err != nil {
		t.Fatal(err)
	}
	if err := f.RemoveData(t.Context(), pod.Key{Namespace: "default", Name: "web"}, "uid-1"); err != nil {
		t.Error(err)
	}
	if !exists(outside+"/precious") || exists(f.o.Dirs.Pod("uid-1")) {
		t.Error("the link was followed, or is still there")
	}
}

func TestUIDsThatLeadElsewhere(t *testing.T) {
	t.Parallel()
	f := files(t, "boot-1")
	put(t, f.o.Dirs.Root+"/precious")
	for _, uid := range []pod.UID{"", ".", "..", "../..", "a/b", "/", "a\x00b"} {
		if err := f.SavePod(savedPod(uid), "serve"); err == nil {
			t.Errorf("%q was saved", uid)
		}
		if _, err := f.LoadPod(uid); err == nil {
			t.Errorf("%q was loaded", uid)
		}
		if err := f.RemoveData(t.Context(), pod.Key{Namespace: "default", Name: "web"}, uid); err == nil {
			t.Errorf("%q was removed", uid)
		}
		if err := f.Remember(uid, nil); err == nil {
			t.Errorf("instances of %q were noted down", uid)
		}
		if err := f.Note(uid, "id", pod.Notes{}); err == nil {
			t.Errorf("the course of an instance of %q was noted down", uid)
		}
	}
	if !exists(f.o.Dirs.Root + "/precious") {
		t.Error("something was removed")
	}
}

// TestStrayDirectories: what is not podrun's is neither listed nor in the way.
func TestStrayDirectories(t *testing.T) {
	t.Parallel()
	f := files(t, "boot-1")
	put(t, f.o.Dirs.Pods()+"/file")
	put(t, f.o.Dirs.Pods()+"/lost+found/file")
	put(t, f.o.Dirs.Manifest("garbage")) // is no JSON
	if all, err := f.Saved(nil); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestWhatIsCutOffIsSwept: a revision's directory that was cut off while it came or went is no revision, and a podrun
// that starts removes it.
func TestWhatIsCutOffIsSwept(t *testing.T) {
	t.Parallel()
	f := files(t, "boot-1")
	p := savedPod("uid-1")
	if err := f.SavePod(p, "serve"); err != nil {
		t.Fatal(err)
	}
	left := []string{f.besides(coming, "uid-2"), f.besides(going, "uid-3")}
	for _, dir := range left {
		put(t, filepath.Join(dir, filepath.Base(f.o.Dirs.Manifest(p.UID))))
	}
	f = f.next("boot-1")
	if all, err := f.Saved(nil); err != nil || len(all) != 1 || all[p.UID].Owner != "serve" || all[p.UID].Key != pod.KeyOf(p) {
		t.Errorf("%+v, %v", all, err)
	}
	if err := f.Sweep(); err != nil {
		t.Error(err)
	}
	if exists(left[0]) || exists(left[1]) || !exists(f.o.Dirs.Manifest(p.UID)) {
		t.Error("too little was removed, or too much")
	}
}

// TestKeptLogs: with KeepLogs a revision's logs stay, and their time begins with its end.
func TestKeptLogs(t *testing.T) {
	t.Parallel()
	f := files(t, "boot-1")
	f.o.KeepLogs = true
	p := savedPod("uid-1")
	if err := f.SavePod(p, "serve"); err != nil {
		t.Fatal(err)
	}
	log := f.o.Dirs.ContainerLog(pod.KeyOf(p), p.UID, "main", 0)
	put(t, log)
	long := time.Now().Add(-time.Hour)
	dir := f.o.Dirs.PodLogs(pod.KeyOf(p), p.UID)
	if err := os.Chtimes(dir, long, long); err != nil {
		t.Fatal(err)
	}
	if err := f.RemoveData(t.Context(), pod.KeyOf(p), p.UID); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !exists(log) || !info.ModTime().After(long) || exists(f.o.Dirs.Pod(p.UID)) {
		t.Errorf("log there: %t, its time: %s, revision there: %t", exists(log), info.ModTime(), exists(f.o.Dirs.Pod(p.UID)))
	}
}

// TestInstances: what was noted down last is found, whoever noted it down, and notes that cannot be read are none.
func TestInstances(t *testing.T) {
	t.Parallel()
	f := files(t, "boot-1")
	p := savedPod("uid-1")
	if err := f.SavePod(p, "serve"); err != nil {
		t.Fatal(err)
	}
	is := func(when string, want ...int) {
		t.Helper()
		all, err := f.Saved(new(pod.KeyOf(p)))
		if err != nil {
			t.Fatal(err)
		}
		for by, newest := range map[string][]pod.Container{"saved": all[p.UID].Newest, "remembered": f.Remembered(p.UID)} {
			var attempts []int
			for _, c := range newest {
				attempts = append(attempts, c.Attempt)
				if c.UID != p.UID {
					t.Errorf("%s, %s: of revision %q", when, by, c.UID)
				}
			}
			if !slices.Equal(attempts, want) {
				t.Errorf("%s, %s: %v, want %v", when, by, attempts, want)
			}
		}
	}
	is("at first")
	if err := f.Remember(p.UID, []pod.Container{{Name: "main", Attempt: 1}}); err != nil {
		t.Fatal(err)
	}
	is("noted down", 1)
	is("again", 1)
	if err := f.next("boot-2").Remember(p.UID, []pod.Container{{Name: "main", Attempt: 2}, {Name: "side", Attempt: 7}}); err != nil {
		t.Fatal(err)
	}
	is("by another podrun", 2, 7)
	put(t, f.o.Dirs.Instances(p.UID))  // is no JSON
	later := time.Now().Add(time.Hour) // than any clock's tick
	if err := os.Chtimes(f.o.Dirs.Instances(p.UID), later, later); err != nil {
		t.Fatal(err)
	}
	is("spoilt")
	if err := f.Remember("uid-none", nil); err != nil || exists(f.o.Dirs.Pod("uid-none")) {
		t.Errorf("of a revision that is gone: %v", err)
	}
}
