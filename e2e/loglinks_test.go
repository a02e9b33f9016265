package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// TestCollector: a real log collector that reads the links as those of the kubelet collects each line once, also
// over a restart of the container and the rotation of its log.
func TestCollector(t *testing.T) {
	rsyslogd, err := exec.LookPath("rsyslogd")
	if err != nil {
		if rsyslogd = "/usr/sbin/rsyslogd"; exec.Command("test", "-x", rsyslogd).Run() != nil {
			t.Skip("rsyslogd is missing: apt-get install rsyslog")
		}
	}
	n := newNode(t)
	must(t, os.MkdirAll(n.path("containers"), 0o755))
	must(t, os.MkdirAll(n.path("collector"), 0o700))
	out := n.path("collector", "out.log")
	must(t, os.WriteFile(n.path("collector", "rsyslog.conf"), fmt.Appendf(nil, `
global(workDirectory=%q maxMessageSize="64k")
module(load="imfile" mode="inotify")
input(type="imfile" file=%q tag="pods" addMetadata="on" reopenOnTruncate="on")
template(name="line" type="string" string="%%$!metadata!filename%% %%msg%%\n")
action(type="omfile" file=%q template="line")
`, n.path("collector"), n.path("containers", "*.log"), out), 0o600))
	var said bytes.Buffer
	cmd := exec.Command(rsyslogd, "-n", "-f", n.path("collector", "rsyslog.conf"), "-i", n.path("collector", "pid"))
	cmd.Stdout, cmd.Stderr = &said, &said
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("rsyslogd said: %s", said.String())
		}
	})
	n.write("a.yaml", manifest("a", "Always", "echo line-$(cat /proc/sys/kernel/random/uuid); "+forever))
	n.serve()
	p := n.ready("a-n")
	collected := func(attempts int) {
		t.Helper()
		n.await(fmt.Sprintf("lines of %d instances", attempts), func() error {
			text, err := os.ReadFile(out)
			if err != nil {
				return err
			}
			var lines []string
			for line := range strings.Lines(string(text)) {
				if !strings.HasPrefix(filepath.Base(strings.Fields(line)[0]), "a-n_default_c-") {
					return fmt.Errorf("no link of a pod's: %s", line)
				}
				lines = append(lines, line[strings.LastIndex(line, "line-"):])
			}
			slices.Sort(lines)
			if distinct := len(slices.Compact(slices.Clone(lines))); distinct != len(lines) || len(lines) != attempts {
				return fmt.Errorf("%q", lines)
			}
			return nil
		})
	}
	collected(1)
	must(t, syscall.Kill(n.mainPID(p, "c"), syscall.SIGKILL))
	n.restarted("a-n", 1)
	collected(2)
}
