package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/test"
)

// TestManifestsHang: podrun is started again while the server of its manifests' file system does not answer. It is
// ready all the same, restarts what dies of the pods that it had, and ends when it is asked to.
func TestManifestsHang(t *testing.T) {
	n := newNode(t)
	n.write("web.yaml", manifest("web", "Always", `trap "exit 3" TERM; while :; do sleep 1000 & wait; done`))
	n.serve()
	n.ready("web-n")
	n.end(syscall.SIGTERM)
	away := n.path("answering")
	must(t, errors.Join(os.Rename(n.manifests, away), os.Mkdir(n.manifests, 0o755)))
	answer := test.HangingMount(t, n.manifests)
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: n.path("notify")})
	must(t, err)
	defer manager.Close()
	must(t, manager.SetReadDeadline(time.Now().Add(patience)))
	n.serveWith([]string{"NOTIFY_SOCKET=" + n.path("notify")})
	text := make([]byte, 4096)
	length, err := manager.Read(text)
	if got := string(text[:length]); err != nil || !strings.HasPrefix(got, "READY=1") {
		t.Errorf("%q, %v", got, err)
	}
	if r := n.run("get", "pods"); !strings.Contains(r.stdout+r.stderr, filepath.Base(n.manifests)+" has not answered yet") {
		t.Error(r)
	}
	n.run("exec", "web", "--", "kill", "1") // it may end with the container
	n.awaitPod("web-n", "to be restarted", func(p *v1.Pod) error {
		if s := p.Status.ContainerStatuses; len(s) != 1 || s[0].RestartCount == 0 || !s[0].Ready {
			return fmt.Errorf("%s", asJSON(s))
		}
		return nil
	})
	n.end(syscall.SIGTERM)
	n.serve()
	answer()
	must(t, errors.Join(os.Remove(n.manifests), os.Rename(away, n.manifests)))
	n.await("the problem to be over", func() error {
		if r := n.run("get", "pods"); r.code != 0 || strings.Contains(r.stdout+r.stderr, "has not answered") {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	n.ready("web-n")
}
