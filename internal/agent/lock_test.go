package agent

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
)

// TestLockServe: lockServe waits for a lock that is released soon, such as that of a killed serve's
// child, but not for one that stays.
func TestLockServe(t *testing.T) {
	t.Parallel()
	dirs := layout.Dirs{Run: t.TempDir()}
	lock, err := lockServe(dirs, ownerServe)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockServe(dirs, commandDown); !errors.Is(err, ErrServing) {
		t.Errorf("locked twice: %v", err)
	}
	time.AfterFunc(100*time.Millisecond, lock.unlock)
	lock, err = lockServe(dirs, commandDown)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockServe(dirs, ownerServe); !errors.Is(err, ErrEnding) {
		t.Errorf("locked beside a down: %v", err)
	}
	lock.unlock()
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
	mine, killed := newPodLocks(dirs, ownerServe), newPodLocks(dirs, ownerOnce)
	a, b := pod.Key{Namespace: "default", Name: "a"}, pod.Key{Namespace: "default", Name: "b"}
	for key, l := range map[pod.Key]*podLocks{a: mine, b: killed} {
		if holder, fresh, err := l.Acquire(key); holder != "" || !fresh || err != nil {
			t.Fatal(holder, fresh, err)
		}
	}
	killed.files[b].Close()
	if err := mine.Sweep(); err != nil {
		t.Fatal(err)
	}
	if !pathExists(dirs.PodLock(a)) || pathExists(dirs.PodLock(b)) {
		t.Errorf("a: %v, b: %v", pathExists(dirs.PodLock(a)), pathExists(dirs.PodLock(b)))
	}
}
