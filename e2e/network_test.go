package e2e

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// freePort is a port of the machine's that nobody has now.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	must(t, err)
	return port
}

// web is a pod that serves its own name at a port of the machine's.
func web(name, port string) string {
	return inContainer(manifest(name, "Always", "mkdir /www; hostname >/www/index.html; exec httpd -f -p 80 -h /www"),
		"ports: [{containerPort: 80, hostPort: "+port+"}]")
}

// waiting checks that a pod's container waits for the reason.
func waiting(reason string, texts ...string) func(*v1.Pod) error {
	return func(p *v1.Pod) error {
		s := p.Status.ContainerStatuses
		if len(s) == 0 || s[0].State.Waiting == nil || s[0].State.Waiting.Reason != reason {
			return errors.New(asJSON(p.Status))
		}
		for _, text := range texts {
			if !strings.Contains(s[0].State.Waiting.Message, text) {
				return fmt.Errorf("no %q in %q", text, s[0].State.Waiting.Message)
			}
		}
		return nil
	}
}

func TestHostPort(t *testing.T) {
	n := newNode(t)
	port := freePort(t)
	n.write("web.yaml", web("web", port)+"---\n"+manifest("other", "Always", forever))
	n.serve()
	n.ready("web-n")
	n.ready("other-n")
	answers := func(want string) {
		t.Helper()
		n.await("the answer of "+want, func() error {
			body, err := get("http://127.0.0.1:" + port + "/")
			if err == nil && body != want+"\n" {
				err = fmt.Errorf("body %q", body)
			}
			return err
		})
	}
	answers("web-n")
	// From another pod and from the pod itself, by the machine's address.
	address := n.pod("web-n").Status.HostIP
	for _, from := range []string{"other", "web"} {
		if got := n.ok("exec", from, "--", "wget", "-qO-", "http://"+address+":"+port+"/"); got != "web-n\n" {
			t.Errorf("from %s: %q", from, got)
		}
	}
	// A second pod for the port waits, says why, and gets it when the first one goes; serve may die meanwhile.
	n.write("second.yaml", web("second", port))
	n.awaitPod("second-n", "to wait for the port", waiting("HostPortConflict", "host port "+port+"/TCP is taken by pod default/web-n"))
	n.end(syscall.SIGKILL)
	answers("web-n")
	n.serve()
	n.write("web.yaml", strings.Replace(web("web", port), "httpd -f", "httpd -vv -f", 1)) // another revision
	n.awaitPod("web-n", "to be edited", func(p *v1.Pod) error {
		if !strings.Contains(p.Spec.Containers[0].Command[2], "-vv") {
			return errors.New("not yet")
		}
		return isReady(p)
	})
	answers("web-n")
	n.remove("web.yaml")
	n.ready("second-n")
	answers("second-n")
}

func TestHostPortOfAProcess(t *testing.T) {
	n := newNode(t)
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer busy.Close()
	_, port, err := net.SplitHostPort(busy.Addr().String())
	must(t, err)
	n.write("web.yaml", web("web", port))
	n.serve()
	n.awaitPod("web-n", "to wait for the port", waiting("HostPortConflict", port+"/TCP is in use by a process of this machine"))
	must(t, busy.Close())
	n.ready("web-n")
}
