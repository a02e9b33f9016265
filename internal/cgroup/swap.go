package cgroup

import (
	"os"
	"path/filepath"
)

// LimitsSwap reports whether this machine's cgroups can limit the use of swap space. On version 2 a cgroup with the
// controller memory shows it, and the machine's root is none: where no other has the controller, LimitsSwap gives it to
// the cgroups in the root, as the low-level runtime does for every container.
func (t *Tree) LimitsSwap() bool {
	if t.unified == "" {
		return t.mounts["memory"] != "" && exists(filepath.Join(t.mounts["memory"], "memory.memsw.limit_in_bytes"))
	}
	dir := withMemory(t.unified)
	if dir == "" {
		_ = os.WriteFile(filepath.Join(t.unified, "cgroup.subtree_control"), []byte("+memory"), 0) // if it fails, none has it
		dir = withMemory(t.unified)
	}
	return dir != "" && exists(filepath.Join(dir, "memory.swap.max"))
}

// withMemory returns the directory of a cgroup, the root or one in it, that has the controller memory; "" if there is
// none. A cgroup has it only if its parent gives it to all of its children, except threaded ones: so the root and its
// children show it.
func withMemory(root string) string {
	children, err := os.ReadDir(root)
	if err != nil {
		return ""
	}
	dirs := []string{root}
	for _, c := range children {
		if c.IsDir() {
			dirs = append(dirs, filepath.Join(root, c.Name()))
		}
	}
	for _, dir := range dirs {
		if exists(filepath.Join(dir, "memory.current")) {
			return dir
		}
	}
	return ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
