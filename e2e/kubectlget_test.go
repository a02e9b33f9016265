package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestKubectlGet: what kubectl get pod -o yaml prints of a running pod of a cluster runs as a manifest; what
// only the cluster acts on is an event.
func TestKubectlGet(t *testing.T) {
	n := newNode(t)
	text, err := os.ReadFile("../testdata/manifests/valid-kubectl-get.yaml")
	must(t, err)
	manifest := strings.Replace(string(text), "    image: busybox:1\n",
		"    image: "+box+"\n    command: [sleep, \"1000000\"]\n", 1)
	n.write("web.yaml", strings.Replace(manifest, "terminationGracePeriodSeconds: 30", "terminationGracePeriodSeconds: 1", 1))
	n.serve("--ignore-node-name")
	n.ok("wait", "-n", "shop", "web-6d9c7f8b5d-x2x7k", "--for=condition=Ready", "--timeout=120s")
	if out := n.ok("exec", "-n", "shop", "web-6d9c7f8b5d-x2x7k", "--", "ls", "/var/cache"); strings.TrimSpace(out) != "web" {
		t.Errorf("in /var/cache: %q", out)
	}
	n.await("the events are written", func() error {
		if out := n.ok("events", "-A"); !strings.Contains(out, "IgnoredField") || !strings.Contains(out, "ownerReferences") {
			return fmt.Errorf("events:\n%s", out)
		}
		return nil
	})
	n.remove("web.yaml")
	n.ok("wait", "-n", "shop", "web-6d9c7f8b5d-x2x7k", "--for=delete", "--timeout=60s")
}
