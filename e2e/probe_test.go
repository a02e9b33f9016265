package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	v1 "k8s.io/api/core/v1"
)

// unready waits until the pod's container runs and is not ready.
func (n *node) unready(name string) *v1.Pod {
	n.t.Helper()
	return n.awaitPod(name, "to run, not ready", func(p *v1.Pod) error {
		if s := p.Status.ContainerStatuses; len(s) == 1 && s[0].State.Running != nil && isReady(p) != nil {
			return nil
		}
		return errors.New(asJSON(p.Status))
	})
}

func TestProbes(t *testing.T) {
	for _, events := range []string{"on", "off"} {
		t.Run("events "+events, func(t *testing.T) { testProbes(t, "--events="+events) })
	}
}

func testProbes(t *testing.T, events string) {
	n := newNode(t)
	script := "mkdir /www && echo ok >/www/live && until [ -e /go ]; do sleep 0.02; done; exec httpd -f -p 8080 -h /www"
	n.write("web.yaml", inContainer(manifest("web", "Always", script),
		"ports: [{name: http, containerPort: 8080}]",
		"startupProbe: {tcpSocket: {port: http}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 100}",
		"readinessProbe: {exec: {command: [test, -e, /ready]}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 1}",
		"livenessProbe: {httpGet: {path: /live, port: http}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 2}"))
	n.serve(events)
	if s := n.unready("web-n").Status.ContainerStatuses[0]; s.Started == nil || *s.Started {
		t.Errorf("before it has started up: %s", asJSON(s))
	}
	n.ok("exec", "web", "--", "touch", "/go")
	n.awaitPod("web-n", "to have started up", func(p *v1.Pod) error {
		if s := p.Status.ContainerStatuses[0]; s.Started != nil && *s.Started && !s.Ready {
			return nil
		}
		return errors.New(asJSON(p.Status.ContainerStatuses))
	})
	n.ok("exec", "web", "--", "touch", "/ready")
	n.ready("web-n")
	n.ok("exec", "web", "--", "rm", "/ready")
	n.unready("web-n")
	n.ok("exec", "web", "--", "touch", "/ready")
	if p := n.ready("web-n"); p.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("restarted for its readiness: %s", asJSON(p.Status))
	}

	// Adopted, it is probed on; then its liveness fails.
	n.end(syscall.SIGKILL)
	n.serve(events)
	n.ok("exec", "web", "--", "rm", "/www/live")
	s := n.restarted("web-n", 1).Status.ContainerStatuses[0]
	if s.LastTerminationState.Terminated == nil || *s.Started || s.Ready {
		t.Errorf("after its liveness failed: %s", asJSON(s))
	}
	log, err := os.ReadFile(n.log.Name())
	must(t, err)
	if !strings.Contains(string(log), "HTTP probe failed with statuscode: 404") {
		t.Error("serve does not say why")
	}
}

func TestGRPCProbe(t *testing.T) {
	n := newNode(t)
	listener, err := net.Listen("tcp", ":0")
	must(t, err)
	state, server := health.NewServer(), grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, state)
	go server.Serve(listener)
	defer server.Stop()
	state.SetServingStatus("web", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	n.write("web.yaml", inContainer(manifest("web", "Always", forever, "hostNetwork: true"),
		fmt.Sprintf("readinessProbe: {grpc: {port: %d, service: web}, periodSeconds: 1}", listener.Addr().(*net.TCPAddr).Port)))
	n.serve()
	n.unready("web-n")
	state.SetServingStatus("web", grpc_health_v1.HealthCheckResponse_SERVING)
	n.ready("web-n")
}

// hooked is a pod that writes into a directory of the host's what happens to it.
func hooked(name, dir, script string, hooks ...string) string {
	return inContainer(manifest(name, "Always", script, "volumes: [{name: data, hostPath: {path: "+dir+"}}]", "os: {name: linux}"),
		append([]string{"volumeMounts: [{name: data, mountPath: /data}]", "lifecycle:"}, strings.Split(strings.TrimRight(indented(2, hooks), "\n"), "\n")...)...)
}

func TestHooks(t *testing.T) {
	n := newNode(t)
	data := n.path("data")
	must(t, os.Mkdir(data, 0o755))
	told := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { told <- r.URL.Path }))
	defer server.Close()
	at, err := url.Parse(server.URL)
	must(t, err)
	slow := withGrace(hooked("web", data, `trap "echo USR1 >>/data/log; exit 0" USR1; echo up >>/data/log; while :; do sleep 0.02; done`,
		`postStart: {exec: {command: [sh, -c, "until [ -e /data/log ]; do sleep 0.02; done; echo postStart >>/data/log"]}}`,
		`preStop: {exec: {command: [sh, -c, "sleep 0.3; echo preStop >>/data/log"]}}`, "stopSignal: SIGUSR1"), 30)
	n.write("web.yaml", slow)
	n.write("http.yaml", withGrace(hooked("http", data, forever,
		fmt.Sprintf("postStart: {httpGet: {host: %s, port: %s, path: /hello}}", at.Hostname(), at.Port()),
		fmt.Sprintf("preStop: {httpGet: {host: %s, port: %s, path: /bye}}", at.Hostname(), at.Port())), 30))
	n.serve()
	n.ready("web-n")
	n.ready("http-n")
	// The hooks are those of the manifest that runs, also when another podrun ends the pod.
	n.end(syscall.SIGKILL)
	n.remove("web.yaml")
	n.remove("http.yaml")
	n.serve()
	n.gone("web-n")
	n.gone("http-n")
	log, err := os.ReadFile(filepath.Join(data, "log"))
	must(t, err)
	if got := strings.Fields(string(log)); strings.Join(got, " ") != "up postStart preStop USR1" {
		t.Errorf("in this order: %q", got)
	}
	server.Close() // nobody asks any more
	close(told)
	if first, second := <-told, <-told; first != "/hello" || second != "/bye" {
		t.Errorf("asked for %q and %q", first, second)
	}
}

func TestHooksThatFail(t *testing.T) {
	n := newNode(t)
	data := n.path("data")
	must(t, os.Mkdir(data, 0o755))
	n.write("bad.yaml", hooked("bad", data, "trap '' TERM; while :; do sleep 0.02; done", `postStart: {exec: {command: ["false"]}}`))
	n.write("slow.yaml", hooked("slow", data, `trap "echo TERM >>/data/slow; exit 0" TERM; while :; do sleep 0.02; done`,
		`preStop: {exec: {command: [sleep, "1000"]}}`))
	n.serve()
	n.restarted("bad-n", 1) // it ends, though it does not listen
	n.ready("slow-n")
	began := time.Now()
	n.remove("slow.yaml")
	n.gone("slow-n")
	if took := time.Since(began); took < time.Second { // by far not the hook's 1000 s
		t.Errorf("gone after %s, before its grace period", took)
	}
	if log, err := os.ReadFile(filepath.Join(data, "slow")); string(log) != "TERM\n" {
		t.Errorf("after the hook had taken too long: %q, %v", log, err)
	}
}

func TestWait(t *testing.T) {
	n := newNode(t)
	n.write("web.yaml", inContainer(manifest("web", "Always", "sleep 0.5; touch /ready; "+forever), "readinessProbe: {exec: {command: [test, -e, /ready]}, periodSeconds: 1, timeoutSeconds: 20}"))
	n.write("job.yaml", manifest("job", "Never", "sleep 0.5"))
	socket := &net.UnixAddr{Net: "unixgram", Name: n.path("notify")}
	manager, err := net.ListenUnixgram("unixgram", socket)
	must(t, err)
	defer manager.Close()
	n.env = []string{"NOTIFY_SOCKET=" + socket.Name}
	n.serve()
	n.env = nil // that was for serve alone
	must(t, manager.SetReadDeadline(time.Now().Add(patience)))
	said := make([]byte, 100)
	length, err := manager.Read(said)
	if err != nil || !strings.HasPrefix(string(said[:length]), "READY=1\n") {
		t.Errorf("the service manager heard %q, %v", said[:length], err)
	}
	n.ok("wait", "web", "--for=condition=Ready", "--timeout=100s")
	if err := isReady(n.pod("web-n")); err != nil {
		t.Error(err)
	}
	n.ok("wait", "job", "--for=phase=Succeeded", "--timeout=100s")
	if r := n.run("wait", "web", "--for=delete", "--timeout=100ms"); r.code != 1 || !strings.Contains(r.stderr, "timed out") {
		t.Error(r)
	}
	n.remove("web.yaml")
	n.ok("wait", "web", "--for=delete", "--timeout=100s")
	if p := n.pod("web-n"); p != nil {
		t.Errorf("still there: %s", asJSON(p.Status))
	}
}
