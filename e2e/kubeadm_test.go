package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/test/testimage"
)

// controlPlane are the pods of kubeadm's manifests.
var controlPlane = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// kubeadmConfig makes kubeadm write the manifests of a machine n with the address of newControlPlane.
const kubeadmConfig = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: 192.0.2.10, bindPort: 6443}
nodeRegistration: {name: "n", criSocket: "unix:///run/none.sock"}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: %s
etcd: {local: {dataDir: %q}}
`

// newControlPlane makes a node with an address, an /etc and processes' mounts of its own, where kubeadm has written its
// manifests, and with the images that they name.
func newControlPlane(t *testing.T, bin string) *node {
	n := nodeInside(t, "--mount", "--net")
	must(t, os.MkdirAll(n.path("upper"), 0o755))
	must(t, os.Mkdir(n.path("work"), 0o755))
	n.inside("sh", "-ec", "ip link set lo up; ip address add 192.0.2.10/24 dev lo; ip route add default via 192.0.2.1 dev lo; "+
		"mount -t overlay -o lowerdir=/etc,upperdir="+n.path("upper")+",workdir="+n.path("work")+" overlay /etc")
	kubeadm := filepath.Join(bin, "kubeadm")
	version := strings.TrimSpace(n.inside(kubeadm, "version", "-o", "short"))
	config := n.path("kubeadm.yaml")
	must(t, os.WriteFile(config, fmt.Appendf(nil, kubeadmConfig, version, n.path("etcd")), 0o600))
	for _, phase := range []string{"certs all", "kubeconfig all", "etcd local", "control-plane all"} {
		n.inside(append(append([]string{kubeadm, "init", "phase"}, strings.Fields(phase)...), "--config", config)...)
	}
	images := strings.Fields(n.inside(kubeadm, "config", "images", "list", "--config", config))
	for _, name := range controlPlane {
		for _, ref := range images {
			if !strings.Contains(ref, "/"+name+":") {
				continue
			}
			archive, err := testimage.Program(n.dir, ref, filepath.Join(bin, name))
			must(t, err)
			n.ok("images", "load", archive)
		}
	}
	n.manifests = "/etc/kubernetes/manifests"
	return n
}

// inside runs a command in the node's namespaces.
func (n *node) inside(args ...string) string {
	n.t.Helper()
	line := append(append([]string{}, n.enter...), args...)
	r := outcome(n.t, exec.Command(line[0], line[1:]...), "")
	if r.code != 0 {
		n.t.Fatalf("%s: %v", strings.Join(args, " "), r)
	}
	return r.stdout
}

// TestKubeadm: the manifests that kubeadm writes run unchanged, with Kubernetes' own programs. With serve --rollback, an
// apiserver whose flags have a typo is back in service by itself, also if podrun is killed meanwhile.
func TestKubeadm(t *testing.T) {
	bin := os.Getenv("PODRUN_E2E_KUBEADM")
	if bin == "" {
		t.Skip("run by make kubeadm, which builds Kubernetes' programs")
	}
	n := newControlPlane(t, bin)
	n.serve("--rollback")
	ready := func(pods ...string) {
		t.Helper()
		n.ok(append([]string{"wait", "--for=condition=Ready", "--timeout=3m", "-n", "kube-system"}, pods...)...)
	}
	await(t, patience, "the manifests to be read", func() error {
		if got := len(n.pods()); got != len(controlPlane) {
			return fmt.Errorf("%d pods", got)
		}
		return nil
	})
	ready(controlPlane...)
	await(t, patience, "the scheduler to be elected, by way of apiserver and etcd", func() error {
		if log := n.run("logs", "-n", "kube-system", "kube-scheduler"); !strings.Contains(log.stderr, "acquired lease") {
			return fmt.Errorf("it says: %v", log)
		}
		return nil
	})
	n.awaitHistory("kube-apiserver", "Healthy", "-n", "kube-system")
	n.inside("sed", "-i", "s/--etcd-servers=/--etcd-servrs=/", n.manifests+"/kube-apiserver.yaml")
	n.awaitPod("kube-apiserver-n", "to fail", func(p *v1.Pod) error {
		if s := p.Status.ContainerStatuses; len(s) == 0 || s[0].LastTerminationState.Terminated == nil {
			return fmt.Errorf("%s", asJSON(s))
		}
		return nil
	})
	n.end(syscall.SIGKILL)
	n.serve("--rollback")
	began := time.Now()
	await(t, 5*time.Minute, "the former apiserver", func() error {
		p := n.pod("kube-apiserver-n")
		if p == nil || p.Annotations[rolledBackWhy] == "" {
			return fmt.Errorf("%s", asJSON(p))
		}
		return isReady(p)
	})
	t.Logf("rolled back and ready %s after podrun was started", time.Since(began).Round(time.Second))
	ready("etcd", "kube-controller-manager", "kube-scheduler") // which use it again
	if etcd := n.pod("etcd-n"); etcd.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Error("etcd was started again")
	}
	n.inside("sed", "-i", "s/--etcd-servrs=/--etcd-servers=/", n.manifests+"/kube-apiserver.yaml")
	n.awaitPod("kube-apiserver-n", "to run what the manifest has", func(p *v1.Pod) error {
		if why := p.Annotations[rolledBackWhy]; why != "" {
			return fmt.Errorf("%s", why)
		}
		return isReady(p)
	})
}
