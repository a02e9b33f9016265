package containerd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/moby/sys/mountinfo"
	"github.com/opencontainers/runtime-spec/specs-go"

	"podrun.io/podrun/internal/ocispec"
	"podrun.io/podrun/internal/pod"
)

// hierarchies are where the cgroup hierarchies are mounted: one for v2, several for v1.
func hierarchies() ([]*mountinfo.Info, error) {
	return mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
}

// unified reports that all controllers are in the v2 hierarchy.
func unified() bool {
	const cgroup2 = 0x63677270
	var st syscall.Statfs_t
	return syscall.Statfs("/sys/fs/cgroup", &st) == nil && st.Type == cgroup2
}

// oomKilled reports that the kernel killed a process in the container's cgroup for want of memory. It
// is asked while the task is not deleted, so the cgroup is still there.
func oomKilled(c containers.Container) bool {
	var spec specs.Spec
	if c.Spec == nil || json.Unmarshal(c.Spec.GetValue(), &spec) != nil || spec.Linux == nil {
		return false
	}
	mounts, err := hierarchies()
	if err != nil {
		return false
	}
	for _, m := range mounts {
		for _, file := range []string{"memory.oom_control", "memory.events"} { // v1 and v2
			text, err := os.ReadFile(filepath.Join(m.Mountpoint, spec.Linux.CgroupsPath, file))
			if err == nil && oomKills(string(text)) {
				return true
			}
		}
	}
	return false
}

func oomKills(text string) bool {
	for line := range strings.Lines(text) {
		if count, ok := strings.CutPrefix(line, "oom_kill "); ok {
			return strings.TrimSpace(count) != "0"
		}
	}
	return false
}

// removeCgroups removes the cgroups of a revision of a pod, which are empty by then.
func removeCgroups(uid pod.UID) error {
	mounts, err := hierarchies()
	if err != nil {
		return fmt.Errorf("looking for the cgroup hierarchies: %w", err)
	}
	var all []error
	for _, m := range mounts {
		for _, path := range ocispec.CgroupParents(string(uid)) {
			if err := removeTree(filepath.Join(m.Mountpoint, path)); err != nil {
				all = append(all, fmt.Errorf("removing a pod's cgroup: %w", err))
			}
		}
	}
	return errors.Join(all...)
}

// removeTree removes a cgroup and those below it. It removes directories only: a cgroup's files go with
// it. A read-only hierarchy holds nothing of podrun's.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	err = syscall.Rmdir(dir)
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EROFS) {
		return nil
	}
	return &os.PathError{Op: "rmdir", Path: dir, Err: err}
}
