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

// TestAnEditKeepsWhatThePodHas: a pod that waits for the device or the ReadWriteOncePod volume of another pod does not get
// it when that pod is edited, but when it is gone.
func TestAnEditKeepsWhatThePodHas(t *testing.T) {
	n := newNode(t)
	const name = "rival.csi.example.com"
	dir, program := n.path("kubelet"), plugin(t, "..", "./internal/test/testcsi/driver")
	state := filepath.Join(dir, "plugins", name)
	must(t, os.MkdirAll((&testcsi.Driver{Dir: state}).VolumeDir("vol-1"), 0o755))
	must(t, os.MkdirAll(n.path("cdi"), 0o755))
	must(t, os.WriteFile(n.path("cdi", "test.json"), []byte(`{"cdiVersion": "0.6.0", "kind": "podrun.example/d", "devices": [
		{"name": "one", "containerEdits": {"env": ["DEVICE=one"]}}]}`), 0o644))
	must(t, os.WriteFile(n.path("node.yaml"), []byte("devices: {podrun.example/d: [podrun.example/d=one]}\n"), 0o644))
	driver := csiDriver(program, dir, name, "-stages")
	n.write("documents.yaml", "apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: "+name+"}\nspec: {attachRequired: false}\n---\n"+
		"apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: one}\nspec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOncePod], "+
		"csi: {driver: "+name+", volumeHandle: vol-1}}\n---\n"+
		"apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: files}\n"+
		"spec: {accessModes: [ReadWriteOncePod], volumeName: one, resources: {requests: {storage: 1Gi}}}\n")
	n.write("driver.yaml", driver)
	device := []string{"resources: {limits: {podrun.example/d: 1}}"}
	volume := []string{"volumeMounts:", "- {name: data, mountPath: /data}"}
	asking := func(name, revision string, lines ...string) string {
		p := manifest(name, "Always", forever, "volumes:", "- {name: data, persistentVolumeClaim: {claimName: files}}")
		return inContainer(inContainer(p, "env: [{name: REVISION, value: '"+revision+"'}]"), lines...)
	}
	n.serve("--plugins", "--plugins-dir="+dir, "--cdi-spec-dirs="+n.path("cdi"), "--node-config="+n.path("node.yaml"))
	for _, c := range []struct {
		what string
		has  []string
		why  string
	}{
		{"device", device, "in use by default/has-device-n"},
		{"volume", volume, "the pod default/has-volume-n has it"},
		{"both", append(device, volume...), "in use by default/has-both-n"},
	} {
		has, waits := "has-"+c.what, "waits-"+c.what
		waiting := func() {
			t.Helper()
			n.awaitPod(waits+"-n", "to wait for the "+c.what, func(p *v1.Pod) error {
				if p.Status.ContainerStatuses[0].ContainerID == "" && strings.Contains(asJSON(p.Status), c.why) {
					return nil
				}
				return errors.New(asJSON(p.Status))
			})
		}
		n.write(has+".yaml", asking(has, "0", c.has...))
		n.ready(has + "-n")
		n.write(waits+".yaml", asking(waits, "0", c.has...))
		waiting()
		for revision := range 3 {
			value := fmt.Sprint(revision + 1)
			n.write(has+".yaml", asking(has, value, c.has...))
			n.awaitPod(has+"-n", "to be its next revision", func(p *v1.Pod) error {
				if p.Spec.Containers[0].Env[0].Value == value && p.Status.ContainerStatuses[0].Ready {
					return nil
				}
				return errors.New(asJSON(p.Status))
			})
			waiting()
		}
		n.remove(has + ".yaml")
		n.gone(has + "-n")
		n.ready(waits + "-n")
		n.remove(waits + ".yaml")
		n.gone(waits + "-n")
	}
	n.end(syscall.SIGTERM)
	n.ok("down", "--all")
}
