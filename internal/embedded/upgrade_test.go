package embedded

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/test"
)

// TestUpgradeEndsNoStranger: the daemon is in another PID namespace, such as that of a container which shares the run
// directory. Its process ID is that of another process here.
func TestUpgradeEndsNoStranger(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := Options{Dirs: layout.Dirs{Root: dir + "/root", Run: dir + "/run"}, Log: slog.New(slog.DiscardHandler)}
	test.Must(t, os.MkdirAll(o.Dirs.Embedded().State(), 0o700))
	lock, err := lockDaemon(daemonLock(o.Dirs), "")
	test.Must(t, err)
	defer lock.Close()
	stranger := exec.Command("sleep", "1000")
	test.Must(t, stranger.Start())
	ended := make(chan error, 1)
	go func() { ended <- stranger.Wait() }()
	defer func() {
		_ = stranger.Process.Kill()
		<-ended
	}()
	_, err = lock.WriteAt([]byte(fmt.Sprintf("%d\n", stranger.Process.Pid)), 0)
	test.Must(t, err)
	if pid := PID(o.Dirs); pid != stranger.Process.Pid {
		t.Fatalf("process %d", pid)
	}
	users, err := acquire(t.Context(), usersLock(o.Dirs), unix.LOCK_SH)
	test.Must(t, err)
	defer users.Close()
	test.Must(t, upgrade(t.Context(), o, users))
	select {
	case err := <-ended:
		t.Errorf("it was ended: %v", err)
		ended <- err
	default:
	}
	if ok, err := tryFlock(users, unix.LOCK_SH); !ok || err != nil {
		t.Errorf("the lock: %t, %v", ok, err)
	}
}
