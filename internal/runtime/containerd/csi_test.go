package containerd_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pluginregistry"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemontest"
	"podrun.io/podrun/internal/runtime/runtimetest"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/test"
	"podrun.io/podrun/internal/test/testcsi"
	"podrun.io/podrun/internal/volume"
	"podrun.io/podrun/internal/volume/csi"
)

// withDriver is a machine's contact with a CSI driver, which begins and ends.
type withDriver struct {
	*volume.Volumes
	dirs   layout.Dirs
	driver *testcsi.Driver
	end    func()
}

// newWithDriver returns volumes with which a driver may register. It has not begun.
func newWithDriver(t *testing.T, dirs layout.Dirs) *withDriver {
	kubelet, err := os.MkdirTemp("", "csi") // short enough for sockets
	test.Must(t, err)
	w := &withDriver{dirs: dirs, end: func() {}, driver: &testcsi.Driver{
		Name: "conformance.csi.example.com", Node: "this-node",
		Dir: filepath.Join(kubelet, "plugins", "d"), Registry: filepath.Join(kubelet, "plugins_registry"),
	}}
	test.Must(t, os.MkdirAll(w.driver.Registry, 0o700))
	log := daemontest.Log(t)
	w.Volumes = volume.New(volume.Options{Dirs: dirs, PluginsDir: kubelet, Log: log})
	registry := pluginregistry.New(pluginregistry.Options{
		File: filepath.Join(filepath.Dir(w.driver.Registry), "refused.json"),
		Dir:  w.driver.Registry, Handlers: map[string]pluginregistry.Handler{registration.CSIPlugin: w.CSI()}, Log: log,
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{}, 2)
	for _, run := range []func(context.Context) error{registry.Run, w.CSI().Run} {
		go func() {
			_ = run(ctx)
			ended <- struct{}{}
		}()
	}
	t.Cleanup(func() {
		cancel()
		<-ended
		<-ended
		w.end()
		mounted, _ := filepath.Glob(filepath.Join(kubelet, "pods/*/volumes/kubernetes.io~csi/*/mount"))
		for _, at := range mounted {
			_ = sys.Unmount(at)
		}
		test.Must(t, os.RemoveAll(kubelet))
	})
	return w
}

// begin begins the driver.
func (w *withDriver) begin() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		_ = w.driver.Serve(ctx)
		close(ended)
	}()
	w.end = func() {
		cancel()
		<-ended
		w.end = func() {}
	}
}

// TestVolumesOfADriver: a pod's inline CSI volume is in the container that mounts it, and in no other; a container that
// starts again has the same one, also without its driver; it is unpublished when the pod is removed, which does not wait
// for the driver. Without the driver it is not mounted, with the reason, and the sandbox can be removed; when the driver
// has registered it is. The fake runtime mounts nothing, so this is not in the conformance suite.
func TestVolumesOfADriver(t *testing.T) {
	for name, start := range daemontest.Kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := start(t)
			w := newWithDriver(t, d.Dirs)
			r := connect(t, d)
			load(t, r)
			testVolumesOfADriver(t, r, w)
		})
	}
}

func testVolumesOfADriver(t *testing.T, r *Runtime, w *withDriver) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "driven", UID: pod.UID("driven-" + rand.Text()), // cgroups are named after it
	}}
	p.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: w.driver.Name}}}}
	for _, c := range []string{"main", "without"} {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{
			Name: c, Image: imageRef, Command: []string{"sh", "-c", runtimetest.Script},
		})
	}
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"}}
	test.Must(t, r.SavePod(p, "serve"))
	image, err := r.Resolve(t.Context(), imageRef)
	test.Must(t, err)
	start := runtime.Start{Pod: p, Image: image}
	makeSandbox := func(attempt int) {
		test.Must(t, r.CreateSandbox(t.Context(), p, attempt))
		start.Sandbox = observed(t, r, p).Sandboxes[0]
	}
	mount := func() error { return w.Mount(t.Context(), pod.Inside{Pod: p, Sandbox: start.Sandbox}) }
	output := func(container, attempt int, line string) string {
		t.Helper()
		start.Container, start.Attempt = &p.Spec.Containers[container], attempt
		in := pod.Inside{Pod: p, Container: start.Container, Sandbox: start.Sandbox}
		start.Mounts, err = w.Setup(t.Context(), in)
		test.Must(t, err)
		return outputOf(t, r, start, line)
	}
	makeSandbox(0)
	isRefused(t, mount(), pod.ReasonFailedMount)
	test.Must(t, r.RemoveSandbox(t.Context(), start.Sandbox.ID, nil))
	makeSandbox(1)
	w.begin()
	test.Eventually(t, "the volume is mounted", func() bool { return mount() == nil })
	for attempt := range 3 {
		var seen testcsi.Seen
		text := output(0, attempt, "cat /data/seen.json && [ ! -e /data/mark ] || echo ,; touch /data/mark")
		text, marked := strings.CutSuffix(text, ",")
		if err := json.Unmarshal([]byte(text), &seen); err != nil {
			t.Fatalf("attempt %d: %v: %q", attempt, err, text)
		}
		if seen.Times != 1 || seen.Context["csi.storage.k8s.io/pod.name"] != p.Name || marked != (attempt > 0) {
			t.Errorf("attempt %d has %+v, and what an earlier one wrote: %v", attempt, seen, marked)
		}
		if attempt == 1 {
			w.end()
		}
	}
	output(1, 0, "[ ! -e /data ]")
	target, err := w.CSI().Publish(t.Context(), csi.InlineRequest(pod.Inside{Pod: p}, &p.Spec.Volumes[0]))
	test.Must(t, err)
	begun := time.Now()
	remaining := observed(t, r, p)
	for _, c := range remaining.Containers {
		daemontest.Eventually(t, "an instance is removed", func() bool { return r.RemoveContainer(t.Context(), c.ID) == nil })
	}
	test.Must(t, r.RemoveSandbox(t.Context(), start.Sandbox.ID, nil))
	test.Must(t, w.Teardown(t.Context(), p.UID))
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("the removal took %s", took)
	}
	clearPod(t, r, observed(t, r, p))
	left := func() bool {
		_, err := os.Lstat(target.Path)
		all, failed := csi.Records(w.dirs)
		return err == nil || failed != nil || len(all) > 0
	}
	if !left() {
		t.Error("it is unpublished without its driver")
	}
	w.begin()
	test.Eventually(t, "it is unpublished when the driver is back", func() bool { return !left() })
	if n := w.driver.Calls("NodeUnpublishVolume"); n != 1 {
		t.Errorf("%d calls", n)
	}
}
