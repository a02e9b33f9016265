package containerd_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemontest"
)

// TestStartOnAFullDisk: runc has no space for a mount point. The program did not run, and the pod does not count it as an
// attempt: it starts when there is space, also with restartPolicy Never.
func TestStartOnAFullDisk(t *testing.T) {
	for name, start := range daemontest.Kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			full := t.TempDir()
			must(t, unix.Mount("none", full, "tmpfs", 0, "nr_inodes=2"))
			t.Cleanup(func() { _ = unix.Unmount(full, 0) })
			must(t, os.WriteFile(filepath.Join(full, "last"), nil, 0o644))
			r := newRig(t, start(t), "sleep 1000")
			r.run(t) // its shim is shared, where that is possible
			r.start.Mounts = []pod.Mount{
				{HostPath: full, ContainerPath: "/full"}, {HostPath: t.TempDir(), ContainerPath: "/full/inner"},
			}
			err := r.StartContainer(t.Context(), r.start)
			if started := (*runtime.StartError)(nil); err == nil || errors.As(err, &started) || errors.Is(err, runtime.ErrCutOff) {
				t.Fatalf("error %v", err)
			}
			must(t, os.Remove(filepath.Join(full, "last")))
			r.run(t)
		})
	}
}
