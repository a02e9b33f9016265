package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// logLinks returns the targets of the links to container logs, by the names of the links without the ID and .log.
func (n *node) logLinks() map[string]string {
	n.t.Helper()
	entries, err := os.ReadDir(n.path("containers"))
	if err != nil && !os.IsNotExist(err) {
		n.t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range entries {
		target, err := os.Readlink(n.path("containers", e.Name()))
		must(n.t, err)
		at := strings.LastIndex(e.Name(), "-")
		out[e.Name()[:at]] += strings.TrimPrefix(target, n.path("log")+"/") + " "
	}
	return out
}

// linked waits until those links exist and no others.
func (n *node) linked(what string, want map[string]string) {
	n.t.Helper()
	n.await("the links of "+what, func() error {
		got := n.logLinks()
		if len(got) != len(want) {
			return fmt.Errorf("%v", got)
		}
		for name, target := range want {
			if strings.TrimSuffix(got[name], " ") != target {
				return fmt.Errorf("%v", got)
			}
		}
		return nil
	})
}

// TestLogLinks: each container's log has a link as the kubelet makes it, as long as the instance is there; podrun
// leaves the links of others alone, and makes none if it is told so.
func TestLogLinks(t *testing.T) {
	n := newNode(t)
	must(t, os.MkdirAll(n.path("containers"), 0o755))
	const others = "etcd-n_kube-system_etcd-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.log"
	must(t, os.Symlink(n.path("log", "kube-system_etcd-n_u9", "etcd", "0.log"), n.path("containers", others)))
	etcd := "kube-system_etcd-n_u9/etcd/0.log"
	n.write("a.yaml", manifest("a", "Always", "echo from a; "+forever))
	n.write("job.yaml", manifest("job", "Never", "echo quick"))
	n.serve()
	p := n.ready("a-n")
	job := string(n.awaitPod("job-n", "to be done", func(p *v1.Pod) error {
		if p.Status.Phase != v1.PodSucceeded {
			return errors.New(asJSON(p.Status))
		}
		return nil
	}).UID)
	log := func(of, uid string, attempt int) string {
		return fmt.Sprintf("default_%s_%s/c/%d.log", of, uid, attempt)
	}
	want := map[string]string{
		"etcd-n_kube-system_etcd": etcd, "a-n_default_c": log("a-n", string(p.UID), 0), "job-n_default_c": log("job-n", job, 0),
	}
	n.linked("a pod and a job", want)
	id := strings.TrimPrefix(p.Status.ContainerStatuses[0].ContainerID, "containerd://")
	text, err := os.ReadFile(n.path("containers", "a-n_default_c-"+id+".log"))
	if err != nil || !bytes.HasSuffix(text, []byte(" stdout F from a\n")) {
		t.Errorf("%q, %v", text, err)
	}
	// A restart: the previous instance is there as long as its log is.
	must(t, syscall.Kill(n.mainPID(p, "c"), syscall.SIGKILL))
	n.restarted("a-n", 1)
	n.await("the link of the second instance", func() error {
		if got := n.logLinks()["a-n_default_c"]; !strings.Contains(got, "/c/1.log ") {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	n.end(syscall.SIGKILL)
	n.remove("job.yaml")
	n.serve("--log-links=false")
	n.gone("job-n")
	n.await("no link of a running instance", func() error {
		got := n.logLinks()
		if got["a-n_default_c"] != "" || got["job-n_default_c"] != "" {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	n.end(syscall.SIGTERM)
	n.serve()
	n.await("the link again", func() error {
		if got := n.logLinks()["a-n_default_c"]; !strings.Contains(got, "/c/1.log ") {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	n.end(syscall.SIGTERM)
	n.ok("down", "--all")
	n.linked("nobody's pods", map[string]string{"etcd-n_kube-system_etcd": etcd})
}

// The configuration of promtail for a machine without an API server: the links, the CRI format, and labels from the
// names of the links.
const promtailConfig = `
server: {http_listen_address: 127.0.0.1, http_listen_port: 0, grpc_listen_port: 0}
positions: {filename: %s}
clients: [{url: "http://127.0.0.1:9/"}]
target_config: {sync_period: 200ms}
scrape_configs:
- job_name: containers
  static_configs:
  - labels: {__path__: %s}
  pipeline_stages:
  - cri: {}
  - regex: {source: filename, expression: '/(?P<pod>[^_/]+)_(?P<namespace>[^_]+)_(?P<container>.+)-(?P<id>[0-9a-f]+)\.log$'}
  - labels: {pod: , namespace: , container: , id: }
`

// TestCollector: promtail, which reads the links as those of the kubelet, collects each line once and in its order,
// also over the rotation of a log, a restart of the container and the end of podrun.
func TestCollector(t *testing.T) {
	promtail, err := filepath.Abs("../bin/promtail")
	must(t, err)
	if _, err := os.Stat(promtail); err != nil {
		t.Skip("bin/promtail is missing: scripts/e2e.sh builds it")
	}
	n := newNode(t)
	must(t, os.MkdirAll(n.path("containers"), 0o755))
	must(t, os.MkdirAll(n.path("collector"), 0o700))
	config, out := n.path("collector", "promtail.yaml"), n.path("collector", "out")
	must(t, os.WriteFile(config, fmt.Appendf(nil, promtailConfig, n.path("collector", "positions"), n.path("containers", "*.log")), 0o600))
	collected, err := os.Create(out)
	must(t, err)
	defer collected.Close()
	var said bytes.Buffer
	cmd := exec.Command(promtail, "-config.file", config, "-dry-run") // it prints what it would send
	cmd.Stdout, cmd.Stderr = collected, &said
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("promtail said: %s", said.String())
		}
	})
	rotate := "--container-log-max-size=16Ki"
	n.write("a.yaml", manifest("a", "Always", "i=0; while :; do i=$((i+1)); echo line-$i; sleep 0.02; done"))
	n.serve(rotate)
	p := n.ready("a-n")
	// lines are the last line of each instance, in the order of their starts, once that is at least want.
	lines := func(instances, want int) {
		t.Helper()
		n.await(fmt.Sprintf("%d lines of instance %d", want, instances), func() error {
			last, err := linesCollected(out)
			if err != nil {
				return err
			}
			if len(last) != instances || last[len(last)-1] < want {
				return fmt.Errorf("%v", last)
			}
			return nil
		})
	}
	lines(1, 400)
	if rotated, err := filepath.Glob(n.path("log", "default_a-n_*", "c", "0.log.*")); err != nil || len(rotated) == 0 {
		t.Errorf("the log was not rotated: %v", err)
	}
	must(t, syscall.Kill(n.mainPID(p, "c"), syscall.SIGKILL))
	n.restarted("a-n", 1)
	lines(2, 50)
	n.end(syscall.SIGKILL)
	n.serve(rotate)
	lines(2, 300)
}

// linesCollected returns the number of the last line of each instance. It returns an error if a line is missing, is
// there twice, or has other labels than those of its container.
func linesCollected(path string) (last []int, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	instances := map[string]int{}
	for line := range strings.Lines(string(text)) {
		_, labels, of := strings.Cut(line, "{container=") // after the time
		labels, text, whole := strings.Cut(labels, "\t")
		if !of || !whole || !strings.HasSuffix(text, "\n") {
			continue // what promtail says of its configuration, and a line that is being written
		}
		_, id, _ := strings.Cut(labels, ` id="`)
		id, _, _ = strings.Cut(id, `"`)
		for _, label := range []string{`"c"`, `namespace="default"`, `pod="a-n"`, `stream="stdout"`} {
			if !strings.Contains(labels, label) {
				return nil, fmt.Errorf("no label %s: %s", label, line)
			}
		}
		at, there := instances[id]
		if !there {
			at, last = len(last), append(last, 0)
			instances[id] = at
		}
		if last[at]++; text != fmt.Sprintf("line-%d\n", last[at]) {
			return nil, fmt.Errorf("line %d of instance %d is %q", last[at], at, text)
		}
	}
	return last, nil
}
