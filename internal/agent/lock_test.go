package agent

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/layout"
)

// A lock that goes within a moment, as that of a killed serve's child, is waited for; one that stays is not.
func TestLockServe(t *testing.T) {
	t.Parallel()
	dirs := layout.Dirs{Run: t.TempDir()}
	lock, err := lockServe(dirs, ownerServe)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockServe(dirs, ownerDown); !errors.Is(err, ErrServing) {
		t.Errorf("locked twice: %v", err)
	}
	time.AfterFunc(100*time.Millisecond, lock.unlock)
	lock, err = lockServe(dirs, ownerDown)
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
