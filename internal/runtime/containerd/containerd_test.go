package containerd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/moby/sys/mountinfo"

	"podrun.io/podrun/internal/network/bridge"
	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemontest"
	"podrun.io/podrun/internal/runtime/containerd/instance"
	"podrun.io/podrun/internal/runtime/runtimetest"
	"podrun.io/podrun/internal/sandbox"
)

// exitWith returns a function that makes the suite's Script exit.
func exitWith(r *Runtime) func(t *testing.T, id string, code int) {
	return func(t *testing.T, id string, code int) {
		t.Helper()
		line := fmt.Sprintf("echo %d > /exit.new && mv /exit.new /exit", code)
		got, err := r.Exec(t.Context(), id, []string{"sh", "-c", line}, runtime.ExecIO{})
		// The container may end, and take the command with it, before the command's own end is told.
		if err != nil || got != 0 && got != 137 {
			t.Fatalf("telling the container to end: %d, %v", got, err)
		}
	}
}

// cdiDevice returns a directory with the CDI specification of the suite's device.
func cdiDevice(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	text := fmt.Appendf(nil, `{"cdiVersion": "0.6.0", "kind": "podrun.example/log", "devices": [{"name": "one", "containerEdits": {
		"deviceNodes": [{"path": %q, "hostPath": "/dev/kmsg", "permissions": "r"}]}}]}`, runtimetest.DevicePath)
	if err := os.WriteFile(filepath.Join(dir, "log.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// hasCgroup reports whether a pod has a cgroup.
func hasCgroup(t *testing.T) func(uid pod.UID) bool {
	return func(uid pod.UID) bool {
		mounts, err := instance.Hierarchies()
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(mounts, func(m *mountinfo.Info) bool {
			return slices.ContainsFunc(oci.CgroupsOf(string(uid)), func(path string) bool {
				_, err := os.Lstat(filepath.Join(m.Mountpoint, path))
				return err == nil
			})
		})
	}
}

func TestConformance(t *testing.T) {
	for name, start := range daemontest.Kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runtimetest.Run(t, func(t *testing.T) runtimetest.Subject {
				d := start(t)
				o := options(t, d)
				podNetwork := bridge.New(bridge.Options{Dirs: d.Dirs, Log: o.Log})
				o.Sandboxes = sandbox.New(sandbox.Options{Dirs: d.Dirs, Network: podNetwork, Log: o.Log, CgroupDriver: o.CgroupDriver})
				o.CDIDirs = []string{cdiDevice(t)}
				r := connectWith(t, d, o)
				load(t, r)
				return runtimetest.Subject{
					Runtime: r, Image: imageRef, Exit: exitWith(r), HasCgroup: hasCgroup(t), Runs: true, Device: "podrun.example/log",
					NoUsers: name == "debian", // its containerd is older than 2.0
				}
			})
		})
	}
}
