package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// plugin builds a program of the module in a directory, and returns the directory that has it as the file plugin.
func plugin(t *testing.T, module, program string) string {
	t.Helper()
	dir := t.TempDir()
	c := exec.CommandContext(t.Context(), "go", "build", "-C", module, "-ldflags=-s -w", "-o", filepath.Join(dir, "plugin"), program)
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", program, err, out)
	}
	return dir
}

// podResources asks podrun, as monitors ask a kubelet, what the first container of a pod has.
func (n *node) podResources(name string) string {
	n.t.Helper()
	conn, err := grpc.NewClient("unix:"+n.path("kubelet", "pod-resources", "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(n.t, err)
	defer conn.Close()
	got, err := podresources.NewPodResourcesListerClient(conn).Get(n.t.Context(),
		&podresources.GetPodResourcesRequest{PodName: name, PodNamespace: "default"})
	must(n.t, err)
	var all []string
	for _, d := range got.PodResources.Containers[0].Devices {
		all = append(all, d.ResourceName+"="+strings.Join(d.DeviceIds, ","))
	}
	return strings.Join(all, " ")
}

// samplePlugin is held by who runs the sample plugin: its devices' mounts are where its source says.
var samplePlugin sync.Mutex

// samplePluginManifest is the manifest of Kubernetes' sample plugin as it is published, but for its image, which is not
// here, and what of /var/lib/kubelet is in another directory. env are further variables.
func samplePluginManifest(t *testing.T, kubelet string, env ...string) string {
	t.Helper()
	samplePlugin.Lock()
	t.Cleanup(func() {
		for _, name := range []string{"/tmp/Dev-1", "/tmp/Dev-2"} {
			_ = os.Remove(name) // made for the mounts
		}
		samplePlugin.Unlock()
	})
	program := plugin(t, "../hack/plugins", "k8s.io/kubernetes/test/images/sample-device-plugin")
	out, err := exec.CommandContext(t.Context(), "go", "list", "-C", "../hack/plugins", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	must(t, err)
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "test/e2e/testing-manifests/sample-device-plugin/sample-device-plugin.yaml"))
	must(t, err)
	image, rest, is := strings.Cut(string(text), "- image: registry.k8s.io/")
	_, rest, cut := strings.Cut(rest, "\n")
	if !is || !cut {
		t.Fatalf("the published manifest is another one:\n%s", text)
	}
	published := image + "- image: " + box + "\n        command: [/program/plugin]\n" + rest
	for from, to := range map[string]string{
		"          path: /var/lib/kubelet":                       "          path: " + kubelet,
		"      volumes:\n":                                       "      volumes:\n      - {name: program, hostPath: {path: " + program + "}}\n",
		"        volumeMounts:\n":                                "        volumeMounts:\n        - {name: program, mountPath: /program}\n",
		"          value: \"/var/lib/kubelet/device-plugins\"\n": "          value: \"/var/lib/kubelet/device-plugins\"\n" + indented(8, env),
	} {
		published = strings.ReplaceAll(published, from, to)
	}
	return published
}

// TestDevicePlugin: Kubernetes' own sample plugin, run as a pod beside those that use its two devices.
func TestDevicePlugin(t *testing.T) {
	n := newNode(t)
	const resource = "example.com/resource"
	must(t, os.MkdirAll(n.path("cdi"), 0o755))
	published := samplePluginManifest(t, n.path("kubelet"), "- {name: CDI_ENABLED, value: '1'}") // as Kubernetes' own tests add it
	published = strings.ReplaceAll(published, "path: /var/run/cdi\n", "path: "+n.path("cdi")+"\n")
	limits := "resources: {limits: {" + resource + ": 1}}"
	asking := func(name string) string { return inContainer(manifest(name, "Always", forever), limits) }
	flags := []string{"--plugins", "--plugins-dir=" + n.path("kubelet"), "--cdi-spec-dirs=" + n.path("cdi")}
	serve := func() { n.serve(flags...) }
	lacks := func(pod, message string) {
		t.Helper()
		n.awaitPod(pod, "to wait: "+message, func(p *v1.Pod) error {
			if p.Status.Reason == "OutOf"+resource && strings.Contains(p.Status.Message, message) {
				return nil
			}
			return errors.New(asJSON(p.Status))
		})
	}
	// The pod before its plugin.
	n.write("a.yaml", asking("a"))
	serve()
	lacks("a-n", "neither this node's --node-config nor a device plugin (--plugins) has "+resource)
	n.write("plugin.yaml", published)
	a := n.ready("a-n")
	device := strings.TrimSpace(n.shell("a", "ls -d /tmp/Dev-*; echo $CDI_DEVICE"))
	if device != "/tmp/Dev-1\nCDI-Dev-1" && device != "/tmp/Dev-2\nCDI-Dev-2" {
		t.Errorf("inside: %q", device)
	}
	n.write("b.yaml", asking("b"))
	n.ready("b-n")
	if got := n.ok("get", "plugins"); !strings.Contains(strings.Join(strings.Fields(got), " "), resource+" DevicePlugin Connected 2 2 2 default/") {
		t.Errorf("get plugins:\n%s", got)
	}
	if got := n.http("/metrics"); !strings.Contains(got, `podrun_plugin_connected{name="`+resource+`",type="DevicePlugin"} 1`) ||
		!strings.Contains(got, `podrun_plugin_devices{health="healthy",resource="`+resource+`"} 2`) ||
		!strings.Contains(got, `podrun_plugin_devices_allocated{resource="`+resource+`"} 2`) ||
		!strings.Contains(got, `kubelet_device_plugin_registration_total{resource_name="`+resource+`"} 1`) {
		t.Errorf("/metrics:\n%s", got)
	}
	if got := n.http("/"); !strings.Contains(got, "<h2>Plugins</h2>") || !strings.Contains(got, "2 of 2 healthy, 2 used") {
		t.Errorf("the page:\n%s", got)
	}
	id := strings.TrimPrefix(strings.Split(device, "\n")[0], "/tmp/")
	n.awaitPod("a-n", "to show its device", func(p *v1.Pod) error {
		if of := p.Status.ContainerStatuses[0].AllocatedResourcesStatus; len(of) == 1 && of[0].Name == resource && len(of[0].Resources) == 1 &&
			of[0].Resources[0] == (v1.ResourceHealth{ResourceID: v1.ResourceID(id), Health: v1.ResourceHealthStatusHealthy}) {
			return nil
		}
		return errors.New(asJSON(p.Status))
	})
	if got := n.ok("describe", "pod", "a"); !strings.Contains(got, id+" (Healthy)") {
		t.Errorf("describe:\n%s", got)
	}
	if got := n.podResources("a-n"); got != resource+"="+id {
		t.Errorf("a monitor sees %q", got)
	}
	n.write("c.yaml", asking("c"))
	lacks("c-n", "in use by default/a-n, default/b-n")
	if r := n.run(append([]string{"serve", "--run-dir=" + n.path("other"), "--root-dir=" + n.path("other"), "--manifests=" + n.path("manifests")}, flags...)...); r.code != 2 ||
		!strings.Contains(r.stderr, "a kubelet, or another podrun, runs on this machine") {
		t.Errorf("beside another one: %v", r)
	}
	// podrun's restart: who has a device keeps it, and the next one gets what is free, without the plugin's doing.
	n.end(syscall.SIGKILL)
	serve()
	n.remove("b.yaml")
	c := n.ready("c-n")
	if got := n.ready("a-n"); got.Status.ContainerStatuses[0].ContainerID != a.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("a was started again: %s", asJSON(got.Status))
	}
	// The plugin's death: its devices are nobody's, but for those who have them. A container that starts again gets the same.
	n.kill(n.pod("sample-device-plugin-beta-n"), "sample-device-plugin")
	n.kill(a, "c")
	n.restarted("a-n", 1)
	if got := strings.TrimSpace(n.shell("a", "ls -d /tmp/Dev-*; echo $CDI_DEVICE")); got != device {
		t.Errorf("after a restart: %q, was %q", got, device)
	}
	n.remove("a.yaml")
	n.gone("a-n")
	n.write("d.yaml", asking("d"))
	n.ready("d-n") // the plugin is back
	if got := n.ready("c-n"); got.UID != c.UID {
		t.Errorf("c: %s", asJSON(got))
	}
	if got := fmt.Sprint(n.pod("d-n").Status.ContainerStatuses[0].RestartCount); got != "0" {
		t.Errorf("d was restarted %s times", got)
	}
}
