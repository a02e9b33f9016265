package exec

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestConfined: no command is run where the container's process is below a chroot, which the command would not be.
func TestConfined(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	root := t.TempDir()
	// Written by another process: what this one writes is busy while a test beside it starts a process.
	if out, err := exec.Command("cp", "/bin/busybox", filepath.Join(root, "sleep")).CombinedOutput(); err != nil {
		t.Fatalf("busybox-static is needed: %v: %s", err, out)
	}
	sleep := exec.Command("/sleep", "1000")
	sleep.Dir, sleep.SysProcAttr = "/", &syscall.SysProcAttr{Chroot: root}
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = sleep.Process.Kill()
		_ = sleep.Wait()
	}()
	x := &Execer{log: slog.New(slog.DiscardHandler)}
	if err := x.confined(sleep.Process.Pid); err == nil || !strings.Contains(err.Error(), "containerd runs in a chroot") {
		t.Errorf("below a chroot: %v", err)
	}
	if err := x.confined(os.Getpid()); err != nil {
		t.Errorf("here: %v", err)
	}
}
