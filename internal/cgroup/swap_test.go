package cgroup

import (
	"os"
	"path/filepath"
	"testing"
)

// TestLimitsSwap: what the files of cgroups show, in whichever of them podrun runs.
func TestLimitsSwap(t *testing.T) {
	t.Parallel()
	const root = "cgroup.subtree_control" // each root has it
	for name, c := range map[string]struct {
		files []string
		want  bool
	}{
		"a container's root":                 {[]string{root, "memory.current", "memory.swap.max", "init/cgroup.procs"}, true},
		"the machine's root":                 {[]string{root, "memory.stat", "init.scope/memory.current", "init.scope/memory.swap.max"}, true},
		"beside a cgroup without controller": {[]string{root, "a/cgroup.procs", "b/memory.current", "b/memory.swap.max"}, true},
		"swap is not counted":                {[]string{root, "memory.current"}, false},
		"not counted below the root":         {[]string{root, "a/memory.current", "b/memory.current"}, false},
		"no controller":                      {[]string{root, "podrun/cgroup.procs"}, false},
	} {
		tree := &Tree{unified: t.TempDir()}
		for _, file := range c.files {
			put(t, filepath.Join(tree.unified, file), "0\n")
		}
		if got := tree.LimitsSwap(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
		given, err := os.ReadFile(filepath.Join(tree.unified, root))
		if want := map[bool]string{true: "+memory", false: "0\n"}[name == "no controller"]; string(given) != want {
			t.Errorf("%s: %q is written to the root, %v", name, given, err)
		}
	}
	first := &Tree{mounts: map[string]string{"memory": t.TempDir()}}
	if first.LimitsSwap() || (&Tree{mounts: map[string]string{}}).LimitsSwap() {
		t.Error("version 1 without accounting of swap")
	}
	put(t, filepath.Join(first.mounts["memory"], "memory.memsw.limit_in_bytes"), "1\n")
	if !first.LimitsSwap() {
		t.Error("version 1 with accounting of swap")
	}
}
