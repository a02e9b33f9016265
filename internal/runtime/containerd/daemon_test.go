package containerd_test

import (
	"context"
	"net/netip"
	"os"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/device"
	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/containerd"
	"podrun.io/podrun/internal/runtime/containerd/daemontest"
	"podrun.io/podrun/internal/sandbox"
	"podrun.io/podrun/internal/test/testimage"
)

const imageRef = "registry.example/test/busybox:1"

func TestMain(m *testing.M) { os.Exit(daemontest.Main(m)) }

// noNetwork leaves pods' network namespaces as they are.
type noNetwork struct{}

func (noNetwork) Setup(context.Context, string, string, *v1.Pod) ([]netip.Addr, error) {
	return nil, nil
}
func (noNetwork) Teardown(context.Context, string) error { return nil }
func (noNetwork) Yield(context.Context, string) error    { return nil }
func (noNetwork) Holders() ([]string, error)             { return nil, nil }

// options returns the Options of a Runtime on d.
func options(t testing.TB, d daemontest.Daemon) containerd.Options {
	log := daemontest.Log(t)
	driver := oci.Driver(os.Getenv("PODRUN_TEST_CGROUP_DRIVER")) // systemd's is for machines that have it
	return containerd.Options{
		CgroupDriver: driver,
		Address:      d.Address, Namespace: daemontest.Namespace, RuntimeName: d.Shim, Dirs: d.Dirs, Log: log,
		Sandboxes: sandbox.New(sandbox.Options{Dirs: d.Dirs, Network: noNetwork{}, Log: log, CgroupDriver: driver}),
	}
}

// connect returns a Runtime. After the test it checks that nothing is left in containerd.
func connect(t testing.TB, d daemontest.Daemon) *Runtime {
	t.Helper()
	return connectWith(t, d, options(t, d))
}

func connectWith(t testing.TB, d daemontest.Daemon, o containerd.Options, plugins ...device.Plugins) *Runtime {
	t.Helper()
	r, err := compose(t, o, plugins...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		clear(t, r)
		r.Close()
		d.NoTraces(t)
	})
	return r
}

// clear kills and removes everything that is left.
func clear(t testing.TB, r *Runtime) {
	ctx := context.Background()
	all, err := r.List(ctx)
	if err != nil {
		t.Error(err)
	}
	for _, o := range all {
		clearPod(t, r, o)
	}
}

func clearPod(t testing.TB, r *Runtime, o pod.Observed) {
	ctx := context.Background()
	for _, c := range o.Containers {
		if err := r.SignalContainer(ctx, c.ID, "KILL"); err != nil {
			t.Error(err)
		}
		daemontest.Eventually(t, "an instance is removed", func() bool { return r.RemoveContainer(ctx, c.ID) == nil })
	}
	for _, s := range o.Sandboxes {
		if err := r.RemoveSandbox(ctx, s.ID, nil); err != nil {
			t.Error(err)
		}
	}
	for _, uid := range o.Data {
		if err := r.RemoveData(ctx, o.Key, uid); err != nil {
			t.Error(err)
		}
	}
}

// find returns the instance of the attempt.
func find(t testing.TB, r *Runtime, key pod.Key, name string, attempt int) pod.Container {
	t.Helper()
	o, err := r.Inspect(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range o.Containers {
		if c.Name == name && c.Attempt == attempt {
			return c
		}
	}
	t.Fatalf("no instance of %s attempt %d in %+v", name, attempt, o)
	return pod.Container{}
}

// load loads the test image.
func load(t testing.TB, r *Runtime, opts ...testimage.Option) {
	t.Helper()
	if names := daemontest.Load(t, r, daemontest.Archive(t, imageRef, opts...)); len(names) != 1 || names[0] != imageRef {
		t.Fatalf("%q", names)
	}
}
