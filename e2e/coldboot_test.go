package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/test/testcsi"
)

// daemonSet is the DaemonSet that a plugin's project publishes, of a manifest's pod.
func daemonSet(name, pod string) string {
	_, spec, _ := strings.Cut(pod, "\nspec:\n")
	out := "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: " + name + "}\nspec:\n  selector: {matchLabels: {app: " + name + "}}\n" +
		"  template:\n    metadata: {labels: {app: " + name + "}}\n    spec:\n"
	for line := range strings.Lines(spec) {
		out += "    " + line
	}
	return out
}

// TestPluginsAfterReboot: a directory with plugins, their documents and a pod that uses all of them becomes Ready, whatever
// the files' names are, and after a cold boot again.
func TestPluginsAfterReboot(t *testing.T) {
	l := machine(t)
	const name, resource = "disk.csi.example.com", "example.com/resource"
	dir := l.path("kubelet")
	state := filepath.Join(dir, "plugins", name)
	t.Cleanup(func() { _ = l.inside("umount -l " + dir) }) // on itself, as podrun leaves it
	csi := plugin(t, "..", "./internal/test/testcsi/driver")
	must(t, os.MkdirAll((&testcsi.Driver{Dir: state}).VolumeDir("shared"), 0o755))
	driver := csiDriver(csi, dir, name, "-stages")
	documents := "apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: " + name + "}\n" +
		"spec: {attachRequired: false, volumeLifecycleModes: [Ephemeral, Persistent]}\n---\n" +
		"apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: fast}\nprovisioner: " + name + "\n---\n" +
		"apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: shared}\nspec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteMany], " +
		"claimRef: {namespace: default, name: shared}, csi: {driver: " + name + ", volumeHandle: shared}}\n"
	claim := "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: %s}\nspec: {accessModes: [ReadWriteOnce], volumeMode: %s, " +
		"storageClassName: fast, resources: {requests: {storage: 1Mi}}}\n---\n"
	user := manifest("user", "Always", `echo x >>/made/boots; echo y >>/shared/boots; `+forever, "volumes:",
		"- {name: made, persistentVolumeClaim: {claimName: made}}", "- {name: block, persistentVolumeClaim: {claimName: block}}",
		"- {name: shared, persistentVolumeClaim: {claimName: shared}}", "- {name: inline, csi: {driver: "+name+"}}")
	user = inContainer(user, "resources: {limits: {"+resource+": 2}}", "volumeDevices: [{name: block, devicePath: /dev/block}]",
		"volumeMounts: [{name: made, mountPath: /made}, {name: shared, mountPath: /shared}, {name: inline, mountPath: /inline}]")
	l.write("a-user.yaml", fmt.Sprintf(claim, "made", "Filesystem")+fmt.Sprintf(claim, "block", "Block")+user)
	l.write("m-documents.yaml", documents)
	l.write("y-driver.yaml", daemonSet("driver", driver))
	l.write("z-sample.yaml", samplePluginManifest(t, dir))
	serve := func() { l.serve("--plugins", "--plugins-dir="+dir) }
	serve()
	l.ready("user-n")
	l.shell("user", "echo text > /dev/block")
	for boot := 2; boot < 4; boot++ {
		l.reboot(func() {})
		serve()
		l.awaitPod("user-n", "to be ready again", func(p *v1.Pod) error {
			if err := isReady(p); err != nil || int(p.Status.ContainerStatuses[0].RestartCount) == boot-1 {
				return err
			}
			return fmt.Errorf("not restarted: %s", asJSON(p.Status))
		})
		got := l.shell("user", "head -c 4 /dev/block; grep -c x /made/boots; grep -c y /shared/boots; test -e /inline/seen.json && echo inline")
		if want := fmt.Sprintf("text%d\n%[1]d\ninline", boot); got != want {
			t.Errorf("after boot %d: %q, want %q", boot, got, want)
		}
	}
	for _, file := range []string{"a-user.yaml", "m-documents.yaml"} {
		l.remove(file)
	}
	l.gone("user-n")
	l.await("the volumes to be unpublished", func() error {
		if got := l.csiVolumes(); got != "" {
			return fmt.Errorf("%s", got)
		}
		return nil
	})
	l.ok("volumes", "rm", "made", "block")
	if made := calls(state, "CreateVolume"); made != 2 || calls(state, "DeleteVolume") != 2 {
		t.Errorf("%d volumes were made, and %d deleted", made, calls(state, "DeleteVolume"))
	}
}
