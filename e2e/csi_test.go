package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	kubelet "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podrun.io/podrun/internal/test/testcsi"
)

// csiDriver is the manifest of a pod that runs the program of a CSI driver with the name, for a podrun with this directory
// of plugins.
func csiDriver(program, dir, name string, flags ...string) string {
	line := fmt.Sprintf("exec /driver/plugin %s -name %s -dir %s -registry %s/plugins_registry",
		strings.Join(flags, " "), name, filepath.Join(dir, "plugins", name), dir)
	p := manifest("driver", "Always", line, "priorityClassName: system-node-critical", "volumes:",
		"- {name: driver, hostPath: {path: "+program+"}}", "- {name: kubelet, hostPath: {path: "+dir+", type: Directory}}")
	return inContainer(p, "securityContext: {privileged: true}", "volumeMounts:", "- {name: driver, mountPath: /driver}",
		"- {name: kubelet, mountPath: "+dir+", mountPropagation: Bidirectional}")
}

// csiVolumes returns the volumes of CSI drivers as get plugins shows them, as POD STATUS.
func (n *node) csiVolumes() string {
	n.t.Helper()
	var list struct {
		Items []struct {
			Type, Status string
			Volumes      []struct{ Pod, Status string }
		}
	}
	must(n.t, json.Unmarshal([]byte(n.ok("get", "plugins", "-o", "json")), &list))
	var all []string
	for _, p := range list.Items {
		for _, v := range p.Volumes {
			all = append(all, v.Pod+" "+v.Status)
		}
	}
	return strings.Join(all, ", ")
}

// volumeCapacity returns what /stats/summary says of the size of the pod's volume that a driver has.
func (n *node) volumeCapacity(pod string) uint64 {
	n.t.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", n.path("run", "podrun.sock"))
	}}}
	answer, err := client.Get("http://localhost/stats/summary")
	must(n.t, err)
	defer answer.Body.Close()
	var all kubelet.Summary
	must(n.t, json.NewDecoder(answer.Body).Decode(&all))
	for _, p := range all.Pods {
		for _, v := range p.VolumeStats {
			if p.PodRef.Name == pod && v.Name == "data" && v.CapacityBytes != nil {
				return *v.CapacityBytes
			}
		}
	}
	return 0
}

// TestCSI: a CSI driver that runs as a pod, and pods that have its inline volumes, in any order, over the end of each and of
// podrun.
func TestCSI(t *testing.T) {
	n := newNode(t)
	const name = "inline.csi.example.com"
	dir, program := n.path("kubelet"), plugin(t, "..", "./internal/test/testcsi/driver")
	state := filepath.Join(dir, "plugins", name)
	driver := csiDriver(program, dir, name)
	document := "apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: " + name + "}\nspec: {volumeLifecycleModes: [Ephemeral], fsGroupPolicy: File}\n---\n"
	secret := "apiVersion: v1\nkind: Secret\nmetadata: {name: login}\nstringData: {user: me}\n---\n"
	asking := func(name string) string {
		p := manifest(name, "Always", forever, "securityContext: {fsGroup: 4321}", "volumes:",
			"- {name: data, csi: {driver: inline.csi.example.com, volumeAttributes: {kind: test}, nodePublishSecretRef: {name: login}}}")
		return inContainer(p, "volumeMounts:", "- {name: data, mountPath: /data}", "- {name: data, mountPath: /part, subPath: part}")
	}
	seen := func(pod string) (s testcsi.Seen) {
		t.Helper()
		must(t, json.Unmarshal([]byte(n.shell(pod, "cat /data/seen.json")), &s))
		return s
	}
	serve := func() { n.serve("--plugins", "--plugins-dir="+dir) }
	// The pod before its driver. Nothing of it runs, its init container neither, which does not mount the volume.
	early := n.path("early")
	init := []string{"- {name: early, hostPath: {path: " + n.path() + "}}", "initContainers:",
		"- {name: i, image: " + box + `, command: [sh, -c, "touch ` + early + `"], volumeMounts: [{name: early, mountPath: ` + n.path() + "}]}"}
	n.write("a.yaml", secret+strings.Replace(asking("a"), "  containers:\n", indented(2, init)+"  containers:\n", 1))
	serve()
	n.awaitPod("a-n", "to wait for its driver", func(p *v1.Pod) error {
		if w := p.Status.InitContainerStatuses[0].State.Waiting; w != nil && strings.Contains(w.Message, "the CSI driver "+name+" has not registered") {
			return nil
		}
		return errors.New(asJSON(p.Status))
	})
	if _, err := os.Stat(early); err == nil {
		t.Error("the init container ran before the volume was mounted")
	}
	n.write("z-driver.yaml", document+driver)
	a := n.ready("a-n")
	got := seen("a")
	if got.Context["csi.storage.k8s.io/pod.name"] != "a-n" || got.Context["csi.storage.k8s.io/pod.uid"] != string(a.UID) ||
		got.Context["kind"] != "test" || got.Secrets["user"] != "me" {
		t.Errorf("the driver was told %+v", got)
	}
	if owner := n.shell("a", "touch /part/new && stat -c %g /data /part/new"); owner != "4321\n4321" {
		t.Errorf("the groups of the volume: %q", owner)
	}
	if got := strings.Join(strings.Fields(n.ok("get", "plugins", "--no-headers")), " "); got != name+" CSIPlugin Connected - - 1 default/a-n" {
		t.Errorf("get plugins: %s", got)
	}
	if got := n.ok("describe", "pod", "a"); !strings.Contains(got, name) || !strings.Contains(got, "Published") {
		t.Errorf("describe:\n%s", got)
	}
	if got := n.http("/metrics"); !strings.Contains(got, `podrun_plugin_volumes{driver="`+name+`",state="published"} 1`) {
		t.Errorf("/metrics:\n%s", got)
	}
	if got := n.http("/"); !strings.Contains(got, `<tr id="plugin:CSIPlugin/`+name+`">`) {
		t.Errorf("the page:\n%s", got)
	}
	if capacity := n.volumeCapacity("a-n"); capacity != 1<<30 {
		t.Errorf("/stats/summary: the driver's volume has %d bytes", capacity)
	}
	// podrun's end.
	n.end(syscall.SIGKILL)
	serve()
	n.write("b.yaml", asking("b"))
	n.ready("b-n")
	// The driver's end: who has a volume keeps it, and needs no driver to start again.
	n.kill(n.pod("driver-n"), "c")
	n.kill(a, "c")
	n.restarted("a-n", 1)
	if got := seen("a"); got.Times != 1 {
		t.Errorf("published %d times", got.Times)
	}
	n.restarted("driver-n", 1)
	// A driver that does not come back keeps no pod from being removed.
	n.remove("z-driver.yaml")
	n.gone("driver-n")
	n.remove("a.yaml")
	n.gone("a-n")
	n.end(syscall.SIGKILL)
	serve()
	if got := n.csiVolumes(); got != "default/a-n Unpublishing, default/b-n Published" {
		t.Errorf("get plugins: %s", got)
	}
	n.write("z-driver.yaml", document+driver)
	n.await("the volume of the removed pod to be unpublished", func() error {
		if got := n.csiVolumes(); got != "default/b-n Published" {
			return errors.New(got)
		}
		return nil
	})
	// All are removed at once: the driver is called before it ends.
	n.end(syscall.SIGTERM)
	n.ok("down", "--all")
	left, err := filepath.Glob(filepath.Join(dir, "pods", "*"))
	must(t, err)
	volumes, err := filepath.Glob(filepath.Join(state, "volumes", "*"))
	must(t, err)
	if all := append(left, volumes...); len(all) > 0 || n.csiVolumes() != "" {
		t.Errorf("left: %q, %s", all, n.csiVolumes())
	}
}

// TestCSIDriverIsOne: the driver of the tests is accepted by Kubernetes' tests of drivers, so that podrun is tested with a true
// one.
func TestCSIDriverIsOne(t *testing.T) {
	if !wanted() {
		t.Skip("end-to-end tests run as root by make e2e (PODRUN_E2E=1)")
	}
	t.Parallel()
	sanity := plugin(t, "../hack/plugins", "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity")
	for _, stages := range []bool{false, true} {
		dir := t.TempDir()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		d := &testcsi.Driver{Name: "sane.csi.example.com", Node: "n", Dir: dir, Stages: stages}
		go func() { done <- d.Serve(ctx) }()
		out, err := exec.CommandContext(t.Context(), filepath.Join(sanity, "plugin"), "--csi.endpoint=unix://"+d.Path("csi.sock"),
			"--csi.mountdir="+d.Path("mount"), "--csi.stagingdir="+d.Path("staging")).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "SUCCESS!") {
			t.Errorf("staging %v: %v\n%s", stages, err, out)
		}
		stop()
		<-done
	}
}

// calls returns how often the driver of the tests that has its state in dir has been called.
func calls(dir, call string) int { return (&testcsi.Driver{Dir: dir}).Calls(call) }

// TestPersistentVolumes: two pods have the volume of a driver that runs as a pod, by documents. It is staged once, and
// unstaged when the last one is gone, over the end of podrun and of the driver.
func TestPersistentVolumes(t *testing.T) {
	n := newNode(t)
	const name = "persistent.csi.example.com"
	dir, program := n.path("kubelet"), plugin(t, "..", "./internal/test/testcsi/driver")
	state := filepath.Join(dir, "plugins", name)
	volume := (&testcsi.Driver{Dir: state}).VolumeDir("vol-1")
	must(t, os.MkdirAll(volume, 0o755))
	driver := csiDriver(program, dir, name, "-stages")
	documents := "apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: " + name + "}\nspec: {attachRequired: false, fsGroupPolicy: File}\n---\n" +
		"apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: shared}\nspec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteMany], " +
		"csi: {driver: " + name + ", volumeHandle: vol-1}}\n"
	claim := "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: files}\n" +
		"spec: {accessModes: [ReadWriteMany], volumeName: shared, resources: {requests: {storage: 1Gi}}}\n---\n"
	asking := func(name string) string {
		p := manifest(name, "Always", forever, "securityContext: {fsGroup: 4321}", "volumes:",
			"- {name: data, persistentVolumeClaim: {claimName: files}}")
		return inContainer(p, "volumeMounts:", "- {name: data, mountPath: /data}", "- {name: data, mountPath: /part, subPath: part}")
	}
	serve := func() { n.serve("--plugins", "--plugins-dir="+dir) }
	expect := func(stage, publish, unpublish, unstage int) {
		t.Helper()
		got := [4]int{calls(state, "NodeStageVolume"), calls(state, "NodePublishVolume"), calls(state, "NodeUnpublishVolume"), calls(state, "NodeUnstageVolume")}
		if want := [4]int{stage, publish, unpublish, unstage}; got != want {
			t.Errorf("calls that stage, publish, unpublish and unstage: %v, want %v", got, want)
		}
	}
	// The pod before its volume's document, and that before its driver.
	n.write("a.yaml", claim+asking("a"))
	serve()
	waits := func(why string) {
		t.Helper()
		n.awaitPod("a-n", "to wait", func(p *v1.Pod) error {
			if w := p.Status.ContainerStatuses[0].State.Waiting; w != nil && strings.Contains(w.Message, why) {
				return nil
			}
			return errors.New(asJSON(p.Status))
		})
	}
	waits(`names the PersistentVolume "shared", which no manifest has`)
	n.write("volumes.yaml", documents)
	waits("the CSI driver " + name + " has not registered")
	n.write("z-driver.yaml", driver)
	a := n.ready("a-n")
	n.write("b.yaml", asking("b"))
	n.ready("b-n")
	n.shell("a", "echo text > /part/new")
	if got := n.shell("b", "cat /data/part/new && stat -c %g /data"); got != "text\n4321" {
		t.Errorf("the other pod sees %q", got)
	}
	expect(1, 2, 0, 0)
	if capacity := n.volumeCapacity("b-n"); capacity != 1<<30 {
		t.Errorf("/stats/summary: the driver's volume has %d bytes", capacity)
	}
	// The end of podrun, the driver, a container, and the documents: who has the volume keeps it.
	n.end(syscall.SIGKILL)
	serve()
	n.kill(n.pod("driver-n"), "c")
	n.restarted("driver-n", 1)
	n.remove("volumes.yaml")
	n.kill(a, "c")
	n.restarted("a-n", 1)
	if got := n.shell("a", "cat /data/part/new"); got != "text" {
		t.Errorf("after a restart the pod sees %q", got)
	}
	expect(1, 2, 0, 0)
	// The last pod is gone.
	n.remove("b.yaml")
	n.gone("b-n")
	expect(1, 2, 1, 0)
	n.remove("a.yaml")
	n.gone("a-n")
	n.await("the volume to be unstaged", func() error {
		if got := n.csiVolumes(); got != "" {
			return errors.New(got)
		}
		return nil
	})
	expect(1, 2, 2, 1)
	for _, pattern := range []string{filepath.Join(dir, "pods", "*a*"), filepath.Join(dir, "plugins", "kubernetes.io", "csi", "*"), n.path("root", "claims")} {
		if left, err := filepath.Glob(pattern); err != nil || len(left) > 0 {
			t.Errorf("left: %q, %v", left, err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(volume, "part", "new")); string(text) != "text\n" {
		t.Errorf("the volume has %q, %v", text, err)
	}
	n.end(syscall.SIGTERM)
	n.ok("down", "--all")
}
