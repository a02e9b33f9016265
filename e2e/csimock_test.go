package e2e

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestCSIMock: Kubernetes' own mock of a CSI driver, as a pod, with a volume that it has from the beginning. What the
// driver has in memory it loses when it is killed, so that it answers NOT_FOUND for what it had published.
func TestCSIMock(t *testing.T) {
	n := newNode(t)
	const name = "mock.csi.example.com"
	dir, program := n.path("kubelet"), plugin(t, "../hack/plugins", "./csimock")
	driver := csiDriver(program, dir, name)
	volume := func(handle string) string {
		return "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: data}\nspec: {capacity: {storage: 100Gi}, " +
			"accessModes: [ReadWriteOnce], claimRef: {namespace: default, name: data}, csi: {driver: " + name + ", volumeHandle: '" + handle + "'}}\n"
	}
	pod := inContainer(manifest("a", "Always", "echo text > /data/file; "+forever, "volumes:",
		"- {name: data, persistentVolumeClaim: {claimName: data}}"), "volumeMounts: [{name: data, mountPath: /data}]")
	n.write("a.yaml", "apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: "+name+"}\nspec: {attachRequired: false}\n---\n"+
		volume("no such volume")+"---\n"+pod)
	n.write("driver.yaml", driver)
	n.serve("--plugins", "--plugins-dir="+dir)
	n.awaitPod("a-n", "to wait for a volume that the driver does not have", func(p *v1.Pod) error {
		w := p.Status.ContainerStatuses[0].State.Waiting
		if w != nil && strings.Contains(w.Message, "NodeStageVolume") && strings.Contains(w.Message, "no such volume") {
			return nil
		}
		return errors.New(asJSON(p.Status))
	})
	n.write("a.yaml", volume("1")+"---\n"+pod)
	a := n.ready("a-n")
	if capacity := n.volumeCapacity("a-n"); capacity != 100<<30 {
		t.Errorf("/stats/summary: the driver's volume has %d bytes", capacity)
	}
	// The driver forgets all, and the pod keeps its volume.
	n.kill(n.pod("driver-n"), "c")
	n.restarted("driver-n", 1)
	n.kill(a, "c")
	n.restarted("a-n", 1)
	if got := n.shell("a", "cat /data/file && stat -f -c %T /data"); got != "text\ntmpfs" {
		t.Errorf("the volume: %q", got)
	}
	// The driver unmounts nothing that it has forgotten: the volume stays recorded, and nothing in it is removed.
	n.remove("a.yaml")
	n.gone("a-n")
	target := filepath.Join(dir, "pods", string(a.UID), "volumes", "kubernetes.io~csi", "data", "mount")
	if text, err := os.ReadFile(filepath.Join(target, "file")); string(text) != "text\n" {
		t.Errorf("the volume has %q, %v", text, err)
	}
	if got := n.csiVolumes(); got != "default/a-n Unpublishing" {
		t.Errorf("volumes: %q", got)
	}
	must(t, syscall.Unmount(target, 0))
	n.kill(n.pod("driver-n"), "c") // when it registers again the volume is unpublished again
	n.await("the volume to be unpublished", func() error {
		if got := n.csiVolumes(); got != "" {
			return errors.New(got)
		}
		return nil
	})
	if _, err := os.Lstat(filepath.Join(dir, "pods", string(a.UID))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left: %v", err)
	}
	n.end(syscall.SIGTERM)
	n.ok("down", "--all")
}
