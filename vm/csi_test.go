package vm

import (
	"context"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"podrun.io/podrun/internal/test/testcsi"
)

const driverName = "inline.csi.example.com"

// serveDriver is the program of the driver's pod.
func serveDriver() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	d := testcsi.Driver{
		Name: driverName, Node: "vm", Dir: "/var/lib/kubelet/plugins/" + driverName, Registry: "/var/lib/kubelet/plugins_registry",
	}
	return d.Serve(ctx)
}

// TestCSI: a directory with the DaemonSet of a driver, its CSIDriver and a pod that uses it, whose file comes first. It is
// complete by itself after a cold boot, too. The machine's root is on a shared mount here.
func TestCSI(t *testing.T) {
	m := bootServing(t)
	m.enable("--plugins")
	m.write("/etc/pods/a.yaml", `apiVersion: v1
kind: Pod
metadata: {name: user}
spec:
  containers:
  - {name: c, image: `+box+`, command: [sh, -c, '`+forever+`'], volumeMounts: [{name: data, mountPath: /data}]}
  volumes:
  - {name: data, csi: {driver: `+driverName+`, volumeAttributes: {kind: test}}}
`)
	m.write("/etc/pods/driver.yaml", `apiVersion: apps/v1
kind: DaemonSet
metadata: {name: driver, namespace: kube-system}
spec:
  selector: {matchLabels: {app: driver}}
  template:
    metadata: {labels: {app: driver}}
    spec:
      priorityClassName: system-node-critical
      containers:
      - name: driver
        image: `+box+`
        command: [/vm/agent]
        env: [{name: PODRUN_VM_DRIVER, value: "1"}]
        securityContext: {privileged: true}
        volumeMounts:
        - {name: program, mountPath: /vm}
        - {name: kubelet, mountPath: /var/lib/kubelet, mountPropagation: Bidirectional}
      volumes:
      - {name: program, hostPath: {path: /vm}}
      - {name: kubelet, hostPath: {path: /var/lib/kubelet, type: Directory}}
---
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: `+driverName+`}
spec: {volumeLifecycleModes: [Ephemeral], attachRequired: false}
`)
	seen := func(want string) {
		t.Helper()
		m.await("the pod with its volume", isReady("user"))
		if got := m.sh("podrun exec user -- cat /data/seen.json"); !strings.Contains(got, want) {
			t.Errorf("the driver was told %s, want %s", got, want)
		}
	}
	seen(`"kind":"test"`)
	m.reboot()
	seen(`"kind":"test"`)
	m.sh("systemctl restart podrun")
	seen(`"kind":"test"`)
	if got := m.sh("podrun get plugins --no-headers"); !strings.Contains(got, "Connected") || !strings.Contains(got, "default/user") {
		t.Errorf("get plugins: %s", got)
	}
	m.sh("systemctl stop podrun; podrun down --all")
	if got := m.sh("ls /var/lib/kubelet/pods; ls /var/lib/podrun/csi; grep -c kubernetes.io~csi /proc/mounts || true"); got != "0" {
		t.Errorf("left: %s", got)
	}
}
