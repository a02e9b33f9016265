package e2e

import (
	"fmt"
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

// TestWaitAfterAnEdit: wait does not answer by what was before an edit, however soon it is asked, and fails if the edit
// cannot be used.
func TestWaitAfterAnEdit(t *testing.T) {
	n := newNode(t)
	text := func(version int, more string) string {
		return fmt.Sprintf(`apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db%s
  selector: {matchLabels: {a: b}}
  updateStrategy: {type: RollingUpdate}
  template:
    metadata: {labels: {a: b}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: c
        image: %q
        command: [sh, -c, "echo version %d; touch /ready; exec sleep 1000"]
        readinessProbe: {exec: {command: [test, -e, /ready]}, periodSeconds: 1}
`, more, box, version)
	}
	n.write("db.yaml", text(0, ""))
	n.serve()
	n.awaitPod("db-1-n", "to be ready", isReady)
	for version := 1; version <= 4; version++ {
		n.write("db.yaml", text(version, ""))
		condition := "Complete"
		if version%2 == 0 {
			condition = "Ready"
		}
		n.ok("wait", "sts/db", "--for=condition="+condition, "--timeout=60s")
		for _, pod := range []string{"db-0", "db-1"} {
			if got, want := n.ok("logs", pod), fmt.Sprintf("version %d\n", version); got != want {
				t.Errorf("%s says %q after the wait for %s, want %q", pod, got, condition, want)
			}
		}
	}
	// What is wrong with something else in the file does not matter.
	const settings = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {a: b}\n"
	n.write("a.yaml", settings)
	n.write("db.yaml", text(4, "")+settings)
	n.ok("wait", "sts/db", "--for=condition=Complete", "--timeout=60s")
	n.write("db.yaml", text(5, "\n  replica: 3"))
	for _, what := range []string{"sts/db", "db-0"} {
		r := n.run("wait", what, "--for=condition=Ready", "--timeout=60s")
		if r.code != 1 || !strings.Contains(r.stderr, "cannot be used") || !strings.Contains(r.stderr, "spec.replica: unknown field") {
			t.Errorf("%s: %v", what, r)
		}
	}
}
