package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/test/testcsi"
)

// TestBlockVolumes: containers have a driver's block device as it is, over the end of each and of podrun, and the next pod
// has what was written to it.
func TestBlockVolumes(t *testing.T) {
	n := newNode(t)
	const name = "block.csi.example.com"
	dir, program := n.path("kubelet"), plugin(t, "..", "./internal/test/testcsi/driver")
	state := filepath.Join(dir, "plugins", name)
	must(t, os.MkdirAll((&testcsi.Driver{Dir: state}).VolumeDir("disk-1"), 0o755))
	driver := csiDriver(program, dir, name, "-stages")
	documents := "apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: " + name + "}\nspec: {attachRequired: false}\n---\n" +
		"apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: disk}\nspec: {capacity: {storage: 4Mi}, accessModes: [ReadWriteOnce], " +
		"volumeMode: Block, csi: {driver: " + name + ", volumeHandle: disk-1}}\n---\n" +
		"apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: disk}\n" +
		"spec: {accessModes: [ReadWriteOnce], volumeMode: Block, volumeName: disk, resources: {requests: {storage: 4Mi}}}\n"
	asking := func(name, how string, more ...string) string {
		p := manifest(name, "Always", forever, "volumes:", "- {name: disk, persistentVolumeClaim: {claimName: disk}}")
		return inContainer(p, append(more, how)...)
	}
	const device = "volumeDevices: [{name: disk, devicePath: /dev/xvda}]"
	serve := func() { n.serve("--plugins", "--plugins-dir="+dir) }
	waits := func(pod, why string) {
		t.Helper()
		n.awaitPod(pod, "to wait", func(p *v1.Pod) error {
			if w := p.Status.ContainerStatuses[0].State.Waiting; w != nil && strings.Contains(w.Message, why) {
				return nil
			}
			return errors.New(asJSON(p.Status))
		})
	}
	n.write("a.yaml", asking("a", device))
	n.write("documents.yaml", documents)
	serve()
	waits("a-n", "the CSI driver "+name+" has not registered")
	n.write("z-driver.yaml", driver)
	a := n.ready("a-n")
	if got := n.shell("a", "test -b /dev/xvda && blockdev --getsize64 /dev/xvda && echo text | dd of=/dev/xvda conv=fsync 2>/dev/null"); got != fmt.Sprint(testcsi.DeviceSize) {
		t.Errorf("the device's size: %q", got)
	}
	n.write("mounts.yaml", asking("mounts", "volumeMounts: [{name: disk, mountPath: /disk}]"))
	waits("mounts-n", "it has volumeMode Block, but is specified in volumeMounts")
	n.remove("mounts.yaml")
	// The end of podrun, the driver, and the container: it has the same device.
	n.end(syscall.SIGKILL)
	serve()
	n.kill(n.pod("driver-n"), "c")
	n.restarted("driver-n", 1)
	n.kill(a, "c")
	n.restarted("a-n", 1)
	read := "head -c 4 /dev/xvda"
	if got := n.shell("a", read); got != "text" {
		t.Errorf("after a restart: %q", got)
	}
	// Others: one that may not write, and one that is privileged, whose machine has a device of that name.
	n.remove("a.yaml")
	n.gone("a-n")
	readOnly := strings.Replace(asking("b", device), "claimName: disk}", "claimName: disk, readOnly: true}", 1)
	n.write("b.yaml", readOnly)
	n.ready("b-n")
	if got := n.shell("b", read+"; (echo more > /dev/xvda) 2>/dev/null || echo refused"); got != "text"+"refused" {
		t.Errorf("read-only: %q", got)
	}
	n.remove("b.yaml")
	n.gone("b-n")
	n.write("c.yaml", asking("c", "volumeDevices: [{name: disk, devicePath: /dev/loop0}]", "securityContext: {privileged: true}"))
	n.ready("c-n")
	if got := n.shell("c", "head -c 4 /dev/loop0"); got != "text" {
		t.Errorf("privileged: %q", got)
	}
	if got := n.ok("describe", "pod", "c-n"); !strings.Contains(got, "/dev/loop0 from disk (device)") {
		t.Errorf("describe:\n%s", got)
	}
	n.remove("c.yaml")
	n.gone("c-n")
	n.await("the volume to be unstaged", func() error {
		if got := n.csiVolumes(); got != "" {
			return errors.New(got)
		}
		return nil
	})
	if left, err := filepath.Glob(filepath.Join(dir, "plugins", "kubernetes.io", "csi", "volumeDevices", "*", "*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
	if calls(state, "NodeUnstageVolume") == 0 {
		t.Error("it was not unstaged")
	}
	n.end(syscall.SIGTERM)
	n.ok("down", "--all")
}
