package e2e

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// nodeInside makes a node whose commands run in new namespaces of these kinds, as unshare and nsenter name them.
func nodeInside(t *testing.T, kinds ...string) *node {
	t.Helper()
	holder := exec.Command("unshare", append(slices.Clone(kinds), "--", "sh", "-c", "echo made; exec sleep infinity")...)
	made, err := holder.StdoutPipe()
	must(t, err)
	holder.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, holder.Start())
	t.Cleanup(func() { // after the node is cleaned up
		_ = holder.Process.Kill()
		_ = holder.Wait()
	})
	if _, err := io.ReadFull(made, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	n := bareNode(t)
	n.enter = append(append([]string{"nsenter", "-t", fmt.Sprint(holder.Process.Pid)}, kinds...), "--")
	return n
}

// newOffline makes a node with a network of its own, which has no address.
func newOffline(t *testing.T) *node {
	t.Helper()
	if wanted() && setup.address != "embedded" {
		t.Skip("another containerd is in the machine's own network")
	}
	n := nodeInside(t, "--net")
	n.inside("sh", "-ec", "ip link set lo up; ip link add wan type veth peer name other; ip link set wan up; ip link set other up")
	n.ok("images", "load", setup.image)
	return n
}

// TestNetworkComesLater: podrun starts before the machine has an address, which is another one later and goes. A pod that
// needs it waits for it. A pod in the machine's network is probed at the address that it has.
func TestNetworkComesLater(t *testing.T) {
	n := newOffline(t)
	web := inContainer(manifest("web", "Always", "exec httpd -f -p 8090", "hostNetwork: true"),
		"livenessProbe: {httpGet: {port: 8090, path: /etc/passwd}, periodSeconds: 1, failureThreshold: 3}")
	n.write("web.yaml", web)
	n.write("named.yaml", inContainer(manifest("named", "Always", "echo $HOST_IP; "+forever),
		"env: [{name: HOST_IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}]"))
	n.serve()
	n.ready("web-n")
	n.waits("named-n", "CreateContainerConfigError", "no address yet")
	n.inside("ip", "address", "add", "192.0.2.2/24", "dev", "wan")
	n.ready("named-n")
	if got := n.ok("logs", "named"); got != "192.0.2.2\n" {
		t.Errorf("the pod that waited for the address: %q", got)
	}
	has := func(ip string) {
		t.Helper()
		n.awaitPod("web-n", "to have "+ip, func(p *v1.Pod) error {
			if p.Status.PodIP != ip || p.Status.HostIP != ip {
				return errors.New(asJSON(p.Status))
			}
			return nil
		})
	}
	has("192.0.2.2")
	n.inside("sh", "-ec", "ip address add 198.51.100.7/24 dev wan; ip address del 192.0.2.2/24 dev wan")
	has("198.51.100.7")
	n.inside("ip", "address", "del", "198.51.100.7/24", "dev", "wan")
	time.Sleep(6 * time.Second) // enough probes to end it
	if events := n.events("web"); events["Killing"] > 0 {
		t.Errorf("events: %v", events)
	}
}
