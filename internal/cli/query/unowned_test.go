package query

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status"
)

var webPod = pod.Key{Namespace: "default", Name: "web-n"}

// hold locks a file as a process does that owns what the file stands for.
func hold(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	must(t, unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_RDLCK, Whence: io.SeekStart}))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newReader returns a reader of its own temporary directories.
func newReader(t *testing.T) *Reader {
	t.Helper()
	dir := t.TempDir()
	dirs := layout.Dirs{Root: dir + "/root", Run: dir + "/run", Log: dir + "/log"}
	must(t, os.MkdirAll(dirs.StatusFiles().Dir(), 0o755))
	return &Reader{Dirs: dirs, Owners: owner.Reader{Dirs: dirs}, Log: slog.New(slog.DiscardHandler)}
}

// unownedReader returns a reader of a running pod that no process owns, while a podrun is running.
func unownedReader(t *testing.T) *Reader {
	r := newReader(t)
	must(t, os.Mkdir(r.Dirs.PodLocks(), 0o700))
	must(t, os.WriteFile(r.Dirs.StatusFiles().Pod(webPod), []byte(`{"metadata": {"name": "web-n", "namespace": "default", "uid": "u1"},
		"spec": {"containers": [{"name": "c"}]}, "status": {"phase": "Running", "containerStatuses": [{"name": "c",
		"state": {"terminated": {"exitCode": 1}}}]}}`), 0o600))
	hold(t, r.Dirs.StatusFiles().Seen())
	return r
}

// TestPodBetweenOwners: a pod that another process acquires within a second is not shown as
// Unowned.
func TestPodBetweenOwners(t *testing.T) {
	t.Parallel()
	r := unownedReader(t)
	synctest.Test(t, func(t *testing.T) {
		pods, err := r.Settled()
		if err != nil || len(pods) != 1 || !status.IsUnowned(pods[0]) {
			t.Errorf("%+v, %v", pods, err)
		}
		acquired := make(chan struct{})
		go func() {
			defer close(acquired)
			time.Sleep(handoverTime / 2)
			hold(t, r.Dirs.PodLock(webPod))
		}()
		pods, err = r.Settled()
		<-acquired
		if err != nil || len(pods) != 1 || status.IsUnowned(pods[0]) {
			t.Errorf("acquired meanwhile: %+v, %v", pods, err)
		}
	})
}

// TestUnownedForLong: commands do not wait for a pod that has had no owner for long, unless a serve
// has just started.
func TestUnownedForLong(t *testing.T) {
	t.Parallel()
	r := unownedReader(t)
	synctest.Test(t, func(t *testing.T) {
		long := time.Now().Add(-time.Hour)
		must(t, os.Chtimes(r.Dirs.StatusFiles().Pod(webPod), long, long))
		waits := func(want bool) {
			t.Helper()
			began := time.Now()
			pods, err := r.Settled()
			if err != nil || len(pods) != 1 || !status.IsUnowned(pods[0]) || time.Now().After(began) != want {
				t.Errorf("after %s: %+v, %v", time.Since(began), pods, err)
			}
		}
		waits(false)
		lock := filepath.Join(r.Dirs.Run, "serve.lock")
		must(t, os.WriteFile(lock, nil, 0o600))
		must(t, os.Chtimes(lock, time.Now(), time.Now()))
		waits(true)
	})
}

// TestUnownedSince: a pod of a serve is Unowned since that serve ended, however long ago its status
// changed; a pod that once left is Unowned since once left it.
func TestUnownedSince(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]time.Duration{"serve": time.Minute, "once": time.Hour} {
		r := newReader(t)
		must(t, os.Mkdir(r.Dirs.PodLocks(), 0o700))
		must(t, os.WriteFile(r.Dirs.StatusFiles().Pod(webPod), []byte(`{"metadata": {"name": "web-n", "namespace": "default"}, "status": {"phase": "Running"}}`), 0o600))
		must(t, os.WriteFile(r.Dirs.PodLock(webPod), []byte(`{"command": "`+command+`"}`), 0o600))
		must(t, os.WriteFile(r.Dirs.StatusFiles().Seen(), nil, 0o600))
		now := time.Now().Truncate(time.Second)
		changed, seen := now.Add(-time.Hour), now.Add(-time.Minute)
		must(t, os.Chtimes(r.Dirs.StatusFiles().Pod(webPod), changed, changed))
		must(t, os.Chtimes(r.Dirs.StatusFiles().Seen(), seen, seen))
		pods, err := r.Settled()
		if err != nil || len(pods) != 1 || !status.UnownedSince(pods[0]).Equal(now.Add(-want)) {
			t.Errorf("%s: %+v, %v", command, pods, err)
		}
	}
}

// TestIncompleteStatuses: the file of a pod that a loss of power has left incomplete is as none.
func TestIncompleteStatuses(t *testing.T) {
	t.Parallel()
	r := unownedReader(t)
	for i, text := range []string{"", `{"metadata": {"name"`, "\x00\x00"} {
		key := pod.Key{Namespace: "default", Name: fmt.Sprint("old", i)}
		must(t, os.WriteFile(r.Dirs.StatusFiles().Pod(key), []byte(text), 0o600))
		must(t, os.WriteFile(r.Dirs.StatusFiles().NotOwned(key), []byte(text), 0o600))
	}
	if pods, err := r.Pods(); err != nil || len(pods) != 1 || pods[0].Name != webPod.Name {
		t.Errorf("got %v, %v", pods, err)
	}
}
