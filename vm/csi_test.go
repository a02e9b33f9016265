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

// TestCSI: a directory with the DaemonSet of a driver, its CSIDriver, a StorageClass and a pod that uses all of it, whose
// file comes first. It is complete by itself after a cold boot, too. The machine's root is on a shared mount here.
func TestCSI(t *testing.T) {
	m := bootServing(t)
	m.enable("--plugins")
	m.write("/etc/pods/a.yaml", `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: disk}
spec: {accessModes: [ReadWriteOnce], volumeMode: Block, storageClassName: fast, resources: {requests: {storage: 4Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: user}
spec:
  containers:
  - name: c
    image: `+box+`
    command: [sh, -c, '`+forever+`']
    volumeMounts: [{name: data, mountPath: /data}]
    volumeDevices: [{name: disk, devicePath: /dev/disk}]
  volumes:
  - {name: data, csi: {driver: `+driverName+`, volumeAttributes: {kind: test}}}
  - {name: disk, persistentVolumeClaim: {claimName: disk}}
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
spec: {volumeLifecycleModes: [Ephemeral, Persistent], attachRequired: false}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: `+driverName+`
`)
	seen := func(want string) {
		t.Helper()
		m.await("the pod with its volume", isReady("user"))
		if got := m.sh("podrun exec user -- cat /data/seen.json"); !strings.Contains(got, want) {
			t.Errorf("the driver was told %s, want %s", got, want)
		}
	}
	seen(`"kind":"test"`)
	m.sh("podrun exec user -- sh -c 'echo text > /dev/disk && sync'")
	has := func(when string) {
		t.Helper()
		if got := m.sh("podrun exec user -- head -c 4 /dev/disk"); got != "text" {
			t.Errorf("%s the device has %q", when, got)
		}
	}
	m.reboot()
	seen(`"kind":"test"`)
	has("after a reboot")
	m.sh("systemctl restart podrun")
	seen(`"kind":"test"`)
	has("after a restart")
	if got := m.sh("podrun get plugins --no-headers"); !strings.Contains(got, "Connected") || !strings.Contains(got, "default/user") {
		t.Errorf("get plugins: %s", got)
	}
	m.sh("rm /etc/pods/a.yaml")
	m.await("the volume to be deleted", "podrun volumes rm disk")
	m.sh("systemctl stop podrun; podrun down --all")
	if got := m.sh("ls /var/lib/kubelet/pods; find /var/lib/podrun/csi -type f; grep -c kubernetes.io~csi /proc/mounts || true"); got != "0" {
		t.Errorf("left: %s", got)
	}
}
