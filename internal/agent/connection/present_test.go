package connection

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/device"
	"podrun.io/podrun/internal/pod"
)

const gpu = v1.ResourceName("example.com/gpu")

func gpuPod(name, uid string) *v1.Pod {
	list := v1.ResourceList{gpu: resource.MustParse("1")}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: pod.UID(uid)},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Limits: list, Requests: list}}}},
	}
}

// TestDeviceOfAPodThatIsLeftAlone: a pod whose checkpoint cannot be read (now, or by this version) runs on, and has the
// only device. No other pod gets it, and the run directory stays bound.
func TestDeviceOfAPodThatIsLeftAlone(t *testing.T) {
	dirs := layout.Dirs{Root: t.TempDir(), Run: t.TempDir()}
	log := slog.New(slog.DiscardHandler)
	const s1, s2 = "11111111111111111111111111111111", "22222222222222222222222222222222"
	devices := func(store *checkpoint.Store) *device.Devices {
		return device.New(device.Options{
			Dirs: dirs, Named: map[v1.ResourceName][]string{gpu: {"example.com/gpu=0"}},
			Present: func() (func(string) bool, error) { return Present(store) },
		})
	}
	store := checkpoint.NewStore(dirs, log)
	p := gpuPod("a", "u1")
	if err := errors.Join(store.Create(p, "serve"), store.Update("u1", func(c *checkpoint.Checkpoint) {
		c.Sandboxes = append(c.Sandboxes, pod.Sandbox{ID: s1, UID: "u1", Boot: "boot", Ready: true})
	})); err != nil {
		t.Fatal(err)
	}
	if err := devices(store).Acquire(t.Context(), s1, p); err != nil {
		t.Fatal(err)
	}
	// A later podrun has written the checkpoint, and the former one is back.
	path := dirs.Revision("u1").Checkpoint()
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, []byte(strings.Replace(string(text), `"version":1`, `"version":2`, 1)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	fresh := checkpoint.NewStore(dirs, log)
	if err := fresh.Scan(); err != nil || !fresh.MayName(s1) || !errors.Is(fresh.Withheld("u1"), checkpoint.ErrLater) {
		t.Fatal("the pod is not left alone", err)
	}
	got, err := devices(fresh).Of(t.Context(), s2, gpuPod("b", "u2"), "c")
	if err == nil {
		t.Errorf("b has the device of a, which runs: %v", got.CDI)
	}
	bound := func(b binding) error {
		leave, err := bind(dirs, b, func(root string) (bool, error) {
			return isEmpty(checkpoint.NewStore(layout.Dirs{Root: root}, log))
		})
		if err == nil {
			leave()
		}
		return err
	}
	if err := bound(binding{Embedded, "podrun", "boot", dirs.Root}); err != nil {
		t.Fatal(err)
	}
	if err := bound(binding{"/run/containerd/containerd.sock", "podrun", "boot", dirs.Root}); err == nil {
		t.Error("the run directory is bound to another containerd, although a pod runs")
	}
}
