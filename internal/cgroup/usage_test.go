package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func write(t *testing.T, files map[string]string) {
	t.Helper()
	for path, text := range files {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, map[string]string{
		dir + "/two/pod/c/cpu.stat":                     "usage_usec 2500000\nuser_usec 1\n",
		dir + "/two/pod/c/memory.current":               "1000\n",
		dir + "/two/pod/c/memory.stat":                  "anon 5\ninactive_file 300\n",
		dir + "/one/cpuacct/pod/c/cpuacct.usage":        "2500000000\n",
		dir + "/one/memory/pod/c/memory.usage_in_bytes": "1000\n",
		dir + "/one/memory/pod/c/memory.stat":           "inactive_file 1\ntotal_inactive_file 300\n",
	})
	want := Usage{CPU: 2500 * time.Millisecond, Memory: 1000, WorkingSet: 700}
	for name, tree := range map[string]*Tree{
		"version 2": {unified: dir + "/two"},
		"version 1": {mounts: map[string]string{"cpuacct": dir + "/one/cpuacct", "memory": dir + "/one/memory"}},
	} {
		if got, err := tree.Usage("/pod/c"); err != nil || got != want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if _, err := tree.Usage("/pod/gone"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s, gone: %v", name, err)
		}
	}
	if _, err := (&Tree{mounts: map[string]string{"memory": dir}}).Usage("/pod/c"); !errors.Is(err, ErrNoUsage) {
		t.Errorf("no accounting: %v", err)
	}
}
