package cmd

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

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

// unownedApp returns a command line with a running pod that no process owns, while a podrun is
// running.
func unownedApp(t *testing.T) *app {
	a, _, _ := newApp(t, nil)
	must(t, os.Mkdir(a.dirs().PodLocks(), 0o700))
	must(t, os.WriteFile(a.dirs().Status(webPod), []byte(`{"metadata": {"name": "web-n", "namespace": "default", "uid": "u1"},
		"spec": {"containers": [{"name": "c"}]}, "status": {"phase": "Running", "containerStatuses": [{"name": "c",
		"state": {"terminated": {"exitCode": 1}}}]}}`), 0o600))
	hold(t, a.dirs().Seen())
	return a
}

// TestPodBetweenOwners: a pod that another process acquires within a second is not shown as
// Unowned.
func TestPodBetweenOwners(t *testing.T) {
	t.Parallel()
	a := unownedApp(t)
	synctest.Test(t, func(t *testing.T) {
		pods, err := settledPods(a.dirs())
		if err != nil || len(pods) != 1 || !status.IsUnowned(pods[0]) {
			t.Errorf("%+v, %v", pods, err)
		}
		taken := make(chan struct{})
		go func() {
			defer close(taken)
			time.Sleep(betweenOwners / 2)
			hold(t, a.dirs().PodLock(webPod))
		}()
		pods, err = settledPods(a.dirs())
		<-taken
		if err != nil || len(pods) != 1 || status.IsUnowned(pods[0]) {
			t.Errorf("taken meanwhile: %+v, %v", pods, err)
		}
	})
}

// TestUnownedForLong: commands do not wait for a pod that has had no owner for long, unless a serve
// has just started.
func TestUnownedForLong(t *testing.T) {
	t.Parallel()
	a := unownedApp(t)
	synctest.Test(t, func(t *testing.T) {
		long := time.Now().Add(-time.Hour)
		must(t, os.Chtimes(a.dirs().Status(webPod), long, long))
		waits := func(want bool) {
			t.Helper()
			began := time.Now()
			pods, err := settledPods(a.dirs())
			if err != nil || len(pods) != 1 || !status.IsUnowned(pods[0]) || time.Now().After(began) != want {
				t.Errorf("after %s: %+v, %v", time.Since(began), pods, err)
			}
		}
		waits(false)
		lock := filepath.Join(a.dirs().Run, "serve.lock")
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
		a, _, _ := newApp(t, nil)
		must(t, os.Mkdir(a.dirs().PodLocks(), 0o700))
		must(t, os.WriteFile(a.dirs().Status(webPod), []byte(`{"metadata": {"name": "web-n", "namespace": "default"}, "status": {"phase": "Running"}}`), 0o600))
		must(t, os.WriteFile(a.dirs().PodLock(webPod), []byte(`{"command": "`+command+`"}`), 0o600))
		must(t, os.WriteFile(a.dirs().Seen(), nil, 0o600))
		now := time.Now().Truncate(time.Second)
		changed, seen := now.Add(-time.Hour), now.Add(-time.Minute)
		must(t, os.Chtimes(a.dirs().Status(webPod), changed, changed))
		must(t, os.Chtimes(a.dirs().Seen(), seen, seen))
		pods, err := settledPods(a.dirs())
		if err != nil || len(pods) != 1 || !status.UnownedSince(pods[0]).Equal(now.Add(-want)) {
			t.Errorf("%s: %+v, %v", command, pods, err)
		}
	}
}

// TestLogsOfUnownedPod: no process starts the next instance of a pod without an owner, so logs -f
// of it ends even if a podrun is running.
func TestLogsOfUnownedPod(t *testing.T) {
	t.Parallel()
	a := unownedApp(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, more, err := a.successor(ctx, logStream{inst: pod.Instance{Key: webPod, UID: "u1", Container: "c"}})
	if more || err != nil {
		t.Errorf("%t, %v", more, err)
	}
}
