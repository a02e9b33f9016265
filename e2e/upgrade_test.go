package e2e

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestUpgradeOfContainerd: podrun is replaced and started again. Its own containerd is then that of the new one, and
// the containers of before run on.
func TestUpgradeOfContainerd(t *testing.T) {
	if wanted() && setup.address != "embedded" {
		t.Skip("another containerd is upgraded by others")
	}
	n := newNode(t)
	n.podrun = n.path("podrun")
	copyOf := func() {
		from, err := os.Open(setup.podrun)
		must(t, err)
		defer from.Close()
		to, err := os.OpenFile(n.podrun+".new", os.O_WRONLY|os.O_CREATE, 0o755)
		must(t, err)
		_, err = io.Copy(to, from)
		must(t, errors.Join(err, to.Close(), os.Rename(n.podrun+".new", n.podrun)))
	}
	daemon := func() string {
		text, err := os.ReadFile(filepath.Join(n.path("run"), "containerd", "daemon.lock"))
		must(t, err)
		pid, _, _ := strings.Cut(string(text), "\n")
		return pid
	}
	program := func() string { // empty while one has ended and the next one has not begun
		path, _ := os.Readlink("/proc/" + daemon() + "/exe")
		return path
	}
	copyOf()
	n.write("a.yaml", manifest("a", "Always", forever))
	n.serve()
	before := n.ready("a-n")
	n.end(syscall.SIGTERM)
	first := daemon()
	n.serve()
	n.ready("a-n")
	if again := daemon(); again != first {
		t.Errorf("without an upgrade: process %s, was %s", again, first)
	}
	n.end(syscall.SIGTERM)
	copyOf()
	if got := program(); !strings.HasSuffix(got, " (deleted)") {
		t.Fatalf("it runs %s", got)
	}
	n.serve()
	n.await("the new containerd", func() error {
		if got := program(); got != n.podrun {
			return fmt.Errorf("it runs %s", got)
		}
		return nil
	})
	n.write("b.yaml", manifest("b", "Always", forever))
	n.ready("b-n")
	after := n.ready("a-n")
	if was, is := before.Status.ContainerStatuses[0], after.Status.ContainerStatuses[0]; was.ContainerID != is.ContainerID {
		t.Errorf("the container of before is another one: %s, was %s", is.ContainerID, was.ContainerID)
	}
	n.ok("exec", "a", "--", "true")
	n.remove("a.yaml")
	n.gone("a-n")
}
