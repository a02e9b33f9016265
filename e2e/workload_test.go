package e2e

import (
	"strings"
	"testing"
)

// published is what projects publish: a DaemonSet with its RBAC and ConfigMap, and beside it a Deployment
// and a StatefulSet that has claims.
const published = `apiVersion: v1
kind: ServiceAccount
metadata: {name: agent}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: agent}
rules: [{apiGroups: [""], resources: [nodes], verbs: [get]}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: agent}
data: {greeting: hello}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      serviceAccountName: agent
      terminationGracePeriodSeconds: 1
      containers:
      - name: c
        image: IMAGE
        command: [sh, -c, 'echo $(cat /etc/agent/greeting); exec sleep 1000000']
        volumeMounts: [{name: config, mountPath: /etc/agent}]
      volumes: [{name: config, configMap: {name: agent}}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: dbs
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: c
        image: IMAGE
        command: [sh, -c, 'echo I am $(hostname) >>/data/log; exec sleep 1000000']
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
`

// TestWorkloads: workloads run as they are published, their pods keep running when another number of them
// is wanted, and claims outlive them.
func TestWorkloads(t *testing.T) {
	n := newNode(t)
	text := strings.ReplaceAll(published, "IMAGE", box)
	n.write("all.yaml", text)
	n.serve()
	n.ready("agent-n")
	n.ok("wait", "ds/agent", "sts/db", "--for=condition=Ready", "--timeout=120s")
	if out := n.ok("logs", "ds/agent"); out != "hello" && out != "hello\n" {
		t.Errorf("the agent says %q", out)
	}
	if out := n.ok("get", "sts", "-o", "jsonpath={.items[*].status.readyReplicas}"); out != "2" {
		t.Errorf("ready: %q", out)
	}
	first := n.pod("db-0-n")
	for pod, want := range map[string]string{"db-0": "I am db-0", "db-1": "I am db-1"} {
		if out := n.ok("exec", pod, "--", "cat", "/data/log"); strings.TrimSpace(out) != want {
			t.Errorf("%s has %q", pod, out)
		}
	}
	n.write("all.yaml", strings.Replace(text, "replicas: 2", "replicas: 1", 1))
	n.ok("wait", "db-1", "--for=delete", "--timeout=60s")
	if now := n.pod("db-0-n"); now == nil || now.UID != first.UID || now.Status.ContainerStatuses[0].ContainerID != first.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("the other pod is another: %s", asJSON(now))
	}
	if out := n.ok("get", "volumes", "-o", "name"); !strings.Contains(out, "volume/data-db-0\nvolume/data-db-1") {
		t.Errorf("volumes %q", out)
	}
	n.remove("all.yaml")
	n.ok("wait", "db-0", "agent", "--for=delete", "--timeout=60s")
}
