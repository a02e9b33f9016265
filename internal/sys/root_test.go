package sys

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRootHides runs itself again in a chroot, and in one that is a mount of the same directory.
func TestRootHides(t *testing.T) {
	if root := os.Getenv("PODRUN_TEST_ROOT"); root != "" {
		if err := unix.Chroot(root); err != nil {
			t.Fatal(err)
		}
		if is, err := RootHides(os.Getpid()); !is || err != nil {
			t.Errorf("in a chroot: %t, %v", is, err)
		}
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if is, err := RootHides(os.Getpid()); is || err != nil {
		t.Fatalf("here: %t, %v", is, err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, script := range []string{
		`mkdir $0/proc && mount --bind $0 $0 && mount -t proc proc $0/proc`, // a directory of its own
		`mount --rbind / $0`, // the same directory once more
	} {
		cmd := exec.Command("sh", "-ec", script+` && PODRUN_TEST_ROOT=$0 exec "$1" -test.run=TestRootHides`, dir, program)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Unshareflags: syscall.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", script, err, out)
		}
	}
}
