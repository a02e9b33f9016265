package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// updated is a Deployment that answers with a version at a port of the machine, at /cgi-bin/slow after two seconds.
func updated(version, port, command string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  minReadySeconds: 1
  template:
    metadata: {labels: {app: web, version: %q}}
    spec:
      terminationGracePeriodSeconds: 10
      containers:
      - name: c
        image: %q
        command:
        - sh
        - -c
        - |
          mkdir -p /www/cgi-bin; echo %[1]s >/www/index.html
          printf '#!/bin/sh\nsleep 2; printf "\\r\\n%[1]s\\n"\n' >/www/cgi-bin/slow; chmod 755 /www/cgi-bin/slow
          %[4]s
        ports: [{containerPort: 80, hostPort: %[3]s}]
        readinessProbe: {httpGet: {port: 80}, periodSeconds: 1, timeoutSeconds: 5}
        lifecycle: {preStop: {sleep: {seconds: 3}}}
`, version, box, port, command)
}

// load asks at a steady rate, and remembers what went wrong and who answered.
type load struct {
	running  chan struct{} // has an element for each request that is not answered yet
	mu       sync.Mutex
	sent     int
	failed   []error
	answered map[string]int
	wait     func()
}

// newLoad begins to send 50 requests a second, each on a connection of its own; fewer where a pod, which forks for each,
// cannot answer that many.
func newLoad(t *testing.T, url string) *load {
	l := &load{running: make(chan struct{}, 3), answered: map[string]int{}}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	tick, stop, ended := time.NewTicker(20*time.Millisecond), make(chan struct{}), make(chan struct{})
	var running sync.WaitGroup
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			select {
			case l.running <- struct{}{}:
				running.Go(func() { l.ask(&client, url) })
			default:
			}
		}
	}()
	l.wait = sync.OnceFunc(func() {
		close(stop)
		<-ended
		running.Wait()
	})
	t.Cleanup(l.wait)
	return l
}

func (l *load) ask(client *http.Client, url string) {
	began := time.Now()
	body, err := getBy(client, url)
	<-l.running
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent++
	if err != nil {
		l.failed = append(l.failed, fmt.Errorf("%w, begun at %s and failed after %s", err, began.Format(time.TimeOnly), time.Since(began)))
	}
	l.answered[strings.TrimSpace(body)]++
}

// TestRollingUpdate: an edit of a Deployment with a host port loses no request, also when podrun is killed meanwhile, and
// one that does not become ready takes nothing away.
func TestRollingUpdate(t *testing.T) {
	n := newNode(t)
	port := freePort(t)
	const serves = "exec httpd -f -p 80 -h /www"
	url := "http://127.0.0.1:" + port + "/"
	put := func(version, command string) { n.write("web.yaml", updated(version, port, command)) }
	runs := func(version string) {
		t.Helper()
		n.await("version "+version+" alone", func() error {
			all := n.pods()
			p, is := all["web-0-n"]
			if !is || len(all) != 1 || p.Labels["version"] != version {
				return errors.New(asJSON(all))
			}
			return isReady(&p)
		})
		n.ok("wait", "deployment/web", "--for=condition=Complete", "--timeout=60s")
		if body, err := get(url); err != nil || body != version+"\n" {
			t.Errorf("%q, %v; want %s", body, err, version)
		}
	}
	put("v1", serves)
	n.serve()
	n.ready("web-0-n")
	runs("v1")
	l := newLoad(t, url)
	slow := make(chan string, 1)
	put("v2", serves)
	n.awaitPod("web-1-n", "to be ready beside the former one", isReady)
	go func() {
		body, err := get(url + "cgi-bin/slow")
		slow <- fmt.Sprint(body, err)
	}()
	n.ok("wait", "deployment/web", "--for=condition=Complete=False", "--timeout=1s")
	runs("v2")
	switch got := <-slow; got {
	case "v1\n<nil>":
	case "v2\n<nil>":
		t.Log("a connection that was there: the machine was too slow to make it in time")
	default:
		t.Errorf("a connection that was there: %q", got)
	}
	put("v3", "exit 7")
	n.awaitPod("web-1-n", "to fail", func(p *v1.Pod) error {
		if s := p.Status.ContainerStatuses; len(s) == 0 || s[0].RestartCount == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	put("v4", serves)
	n.awaitPod("web-1-n", "to start", func(p *v1.Pod) error {
		if p.Labels["version"] != "v4" {
			return errors.New("not yet")
		}
		return isReady(p)
	})
	n.end(syscall.SIGKILL)
	n.serve("--rollback") // which records revisions for undo
	runs("v4")
	// Edited again while the pod that was there for the last edit is still ending, and taken back.
	put("v5", serves)
	n.await("the pod of the update to be ending", func() error {
		all := n.pods()
		if p, of := all["web-0-n"], all["web-1-n"]; p.Labels["version"] != "v5" || of.DeletionTimestamp == nil {
			return errors.New(asJSON(all))
		}
		return nil
	})
	put("v6", serves)
	runs("v6")
	n.ok("undo", "deployment/web")
	n.ok("wait", "-f", n.path("manifests", "web.yaml"), "--for=condition=Complete", "--timeout=60s")
	if body, err := get(url); err != nil || body == "v6\n" {
		t.Errorf("after undo: %q, %v", body, err)
	}
	l.wait()
	if len(l.failed) > 0 || l.sent < 500 || l.answered["v1"] == 0 || l.answered["v2"] == 0 || l.answered["v4"] == 0 {
		t.Errorf("of %d requests %d failed; answers %v; the first %v", l.sent, len(l.failed), l.answered, l.failed[:min(3, len(l.failed))])
	}
	t.Logf("%d requests, answers %v", l.sent, l.answered)
	n.remove("web.yaml")
	n.gone("web-0-n")
}
