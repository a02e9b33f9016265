package owner

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
)

// TestLockRun: LockRun waits for a lock that is released soon, such as that of a killed serve's
// child, but not for one that stays.
func TestLockRun(t *testing.T) {
	t.Parallel()
	dirs := layout.Dirs{Run: t.TempDir()}
	lock, err := LockRun(dirs, Serve)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := LockRun(dirs, Down); !errors.Is(err, ErrServing) {
		t.Errorf("locked twice: %v", err)
	}
	time.AfterFunc(100*time.Millisecond, lock.Unlock)
	lock, err = LockRun(dirs, Down)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := LockRun(dirs, Serve); !errors.Is(err, ErrEnding) {
		t.Errorf("locked beside a down: %v", err)
	}
	lock.Unlock()
	if fd, err := unix.Open(filepath.Join(dirs.Run, "serve.lock"), unix.O_RDWR, 0); err != nil || unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		t.Error("it is still locked", err)
	} else if err := unix.Close(fd); err != nil {
		t.Error(err)
	}
}

// TestSweepOfPodLocks: the file of a pod whose owner was killed is removed, that of a pod with an
// owner stays.
func TestSweepOfPodLocks(t *testing.T) {
	dirs := layout.Dirs{Run: t.TempDir()}
	mine, killed := NewLocks(dirs, Serve), NewLocks(dirs, Once)
	a, b := pod.Key{Namespace: "default", Name: "a"}, pod.Key{Namespace: "default", Name: "b"}
	for key, l := range map[pod.Key]*Locks{a: mine, b: killed} {
		if holder, fresh, err := l.Acquire(key); holder != "" || !fresh || err != nil {
			t.Fatal(holder, fresh, err)
		}
	}
	killed.files[b].Close()
	if err := mine.Sweep(); err != nil {
		t.Fatal(err)
	}
	if !exists(dirs.PodLock(a)) || exists(dirs.PodLock(b)) {
		t.Errorf("a: %v, b: %v", exists(dirs.PodLock(a)), exists(dirs.PodLock(b)))
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
