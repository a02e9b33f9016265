package containerd_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podrun.io/podrun/internal/device"
	"podrun.io/podrun/internal/network/bridge"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemontest"
	"podrun.io/podrun/internal/runtime/runtimetest"
	"podrun.io/podrun/internal/sandbox"
	"podrun.io/podrun/internal/test"
)

// plugged is the resource of a plugin, which has the devices "one" and "two".
const plugged = v1.ResourceName("plugged.example/device")

// plugin is a device plugin. A container that has a device of its, has also the
// variable PLUGGED with the devices' IDs, dir at /plugged, read-only, and the device node /dev/plugged.
type plugin struct {
	dir string
	at  string // of the node, if it is another path

	mu     sync.Mutex
	refuse string // the call that fails
	calls  []string
}

// errRefused is the error of a call that a test has made fail.
var errRefused = errors.New("as the test wants")

func (p *plugin) call(call string, ids []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, call+" "+strings.Join(ids, ","))
	if p.refuse == call {
		return errRefused
	}
	return nil
}

func (p *plugin) fail(call string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = call
}

// since returns the calls since it was called last.
func (p *plugin) since() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := strings.Join(p.calls, "; ")
	p.calls = nil
	return all
}

// Devices implements device.Plugins.
func (p *plugin) Devices() map[v1.ResourceName]map[string]device.Plugged {
	return map[v1.ResourceName]map[string]device.Plugged{plugged: {"one": {Healthy: true}, "two": {Healthy: true}}}
}

// Prefer implements device.Plugins: the last ones.
func (p *plugin) Prefer(_ context.Context, _ v1.ResourceName, free, _ []string, number int) ([]string, error) {
	all := slices.Sorted(slices.Values(free))
	return all[max(0, len(all)-number):], nil
}

// Allocate implements device.Plugins.
func (p *plugin) Allocate(_ context.Context, _ v1.ResourceName, ids []string) (
	*v1beta1.ContainerAllocateResponse, bool, error,
) {
	return &v1beta1.ContainerAllocateResponse{
		Envs:    map[string]string{"PLUGGED": strings.Join(ids, ",")},
		Mounts:  []*v1beta1.Mount{{ContainerPath: "/plugged", HostPath: p.dir, ReadOnly: true}},
		Devices: []*v1beta1.DeviceSpec{{HostPath: "/dev/null", ContainerPath: cmp.Or(p.at, "/dev/plugged"), Permissions: "rw"}},
	}, true, p.call("Allocate", ids)
}

// OnChange implements device.Plugins.
func (p *plugin) OnChange(func()) {}

// Lost implements device.Plugins.
func (p *plugin) Lost() map[v1.ResourceName]time.Time { return nil }

// PreStart implements device.Plugins.
func (p *plugin) PreStart(_ context.Context, _ v1.ResourceName, ids []string, _ bool) error {
	return p.call("PreStart", ids)
}

// TestPlugged requests a device of a plugin. What the plugin says is in the container that requests it and in no other;
// the plugin allocates once, and prepares each start; if it refuses, the sandbox or the container is not made, and a
// later call succeeds. The fake runtime has no devices, so this is not in the conformance suite.
func TestPlugged(t *testing.T) {
	for name, start := range daemontest.Kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &plugin{dir: t.TempDir()}
			test.Must(t, os.WriteFile(filepath.Join(p.dir, "file"), []byte("content"), 0o600))
			d := start(t)
			o := options(t, d)
			podNetwork := bridge.New(bridge.Options{Dirs: d.Dirs, Log: o.Log})
			o.Sandboxes = sandbox.New(sandbox.Options{Dirs: d.Dirs, Network: podNetwork, Log: o.Log})
			r := connectWith(t, d, o, p)
			load(t, r)
			testPlugged(t, r, p)
		})
	}
}

// asking returns a pod whose first container asks for a device of the plugin.
func asking(name string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: pod.UID(name + "-" + rand.Text()), // cgroups are named after it
	}}
	for _, c := range []string{"main", "without"} {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{
			Name: c, Image: imageRef, Command: []string{"sh", "-c", runtimetest.Script},
		})
	}
	list := v1.ResourceList{plugged: resource.MustParse("1")}
	p.Spec.Containers[0].Resources = v1.ResourceRequirements{Limits: list, Requests: list}
	return p
}

// isRefused fails unless an error has the reason.
func isRefused(t *testing.T, err error, reason string) {
	t.Helper()
	of := (*runtime.ReasonError)(nil)
	if !errors.As(err, &of) || of.Reason != reason {
		t.Errorf("got %v, want the reason %s", err, reason)
	}
}

func observed(t *testing.T, r *Runtime, p *v1.Pod) pod.Observed {
	t.Helper()
	o, err := r.Inspect(t.Context(), pod.KeyOf(p))
	test.Must(t, err)
	return o
}

// outputOf starts a container, returns what a line of sh writes in it, and makes the container exit.
func outputOf(t *testing.T, r *Runtime, start runtime.Start, line string) string {
	t.Helper()
	test.Must(t, r.StartContainer(t.Context(), start))
	id := find(t, r, pod.KeyOf(start.Pod), start.Container.Name, start.Attempt).ID
	var out, errOut bytes.Buffer
	code, err := r.Exec(t.Context(), id, []string{"sh", "-c", line}, runtime.ExecIO{Stdout: &out, Stderr: &errOut})
	if err != nil || code != 0 {
		t.Errorf("%s: %d, %v, %s", line, code, err, errOut.String())
	}
	exitWith(r)(t, id, 0)
	return strings.TrimSpace(out.String())
}

func testPlugged(t *testing.T, r *Runtime, plugin *plugin) {
	expect := func(want string) {
		t.Helper()
		if got := plugin.since(); got != want {
			t.Errorf("the plugin was called: %q, want %q", got, want)
		}
	}
	refused := func(err error, reason string) { t.Helper(); isRefused(t, err, reason) }
	inspect := func(p *v1.Pod) pod.Observed { return observed(t, r, p) }
	make := func(p *v1.Pod) {
		test.Must(t, r.SavePod(p, "serve"))
		test.Must(t, r.CreateSandbox(t.Context(), p, 0))
	}
	output := func(start runtime.Start, line string) string { t.Helper(); return outputOf(t, r, start, line) }
	a, b, c := asking("plugged-a"), asking("plugged-b"), asking("plugged-c")
	test.Must(t, r.SavePod(a, "serve"))
	plugin.fail("Allocate")
	refused(r.CreateSandbox(t.Context(), a, 0), runtime.ReasonAdmission)
	if o := inspect(a); len(o.Sandboxes) > 0 {
		t.Errorf("left: %+v", o.Sandboxes)
	}
	plugin.fail("")
	make(a)
	expect("Allocate two; Allocate two") // what was refused is free again
	image, err := r.Resolve(t.Context(), imageRef)
	test.Must(t, err)
	start := runtime.Start{Pod: a, Container: &a.Spec.Containers[0], Sandbox: inspect(a).Sandboxes[0], Image: image}
	plugin.fail("PreStart")
	refused(r.StartContainer(t.Context(), start), runtime.ReasonConfig)
	if o := inspect(a); len(o.Containers) > 0 {
		t.Errorf("left: %+v", o.Containers)
	}
	plugin.fail("")
	expect("PreStart two")
	for start.Attempt = range 2 {
		line := `echo "$PLUGGED $(cat /plugged/file)"; echo x >/dev/plugged && [ -c /dev/plugged ] && ! echo x 2>/dev/null >/plugged/file`
		if got := output(start, line); got != "two content" {
			t.Errorf("attempt %d has %q", start.Attempt, got)
		}
		expect("PreStart two")
	}
	start.Container, start.Attempt = &a.Spec.Containers[1], 0
	if got := output(start, `echo "[$PLUGGED]"; [ ! -e /plugged ] && [ ! -e /dev/plugged ]`); got != "[]" {
		t.Errorf("a container that does not ask for it has %q", got)
	}
	expect("")
	make(b)
	expect("Allocate one")
	test.Must(t, r.SavePod(c, "serve"))
	refused(r.CreateSandbox(t.Context(), c, 0), runtime.ReasonAdmission)
	expect("")
	clearPod(t, r, inspect(a))
	test.Must(t, r.CreateSandbox(t.Context(), c, 0))
	expect("Allocate two")
}
