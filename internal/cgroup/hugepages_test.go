package cgroup

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func TestHugePages(t *testing.T) {
	dir := t.TempDir()
	for name, pages := range map[string][2]string{"hugepages-2048kB": {"3\n", "1\n"}, "hugepages-1048576kB": {"0\n", "2\n"}, "hugepages-64kB": {"0\n", "0\n"}} {
		put(t, filepath.Join(dir, name, "nr_hugepages"), pages[0])
		put(t, filepath.Join(dir, name, "nr_overcommit_hugepages"), pages[1])
	}
	put(t, filepath.Join(dir, "else"), "")
	got, err := hugePagesIn(dir)
	if want := map[int64]int64{2 << 20: 8 << 20, 1 << 30: 2 << 30}; err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	put(t, filepath.Join(dir, "hugepages-64kB", "nr_hugepages"), "many")
	if got, err := hugePagesIn(dir); err == nil {
		t.Errorf("%v of what cannot be read", got)
	}
	if got, err := hugePagesIn(filepath.Join(dir, "none")); err != nil || len(got) != 0 {
		t.Errorf("a kernel without: %v, %v", got, err)
	}
}

func TestLimitsHugePages(t *testing.T) {
	dir := t.TempDir()
	second := &Tree{unified: dir}
	if second.LimitsHugePages() {
		t.Error("without a controller")
	}
	put(t, filepath.Join(dir, "cgroup.controllers"), "cpu hugetlb pids\n")
	first := &Tree{mounts: map[string]string{"hugetlb": filepath.Join(dir, "hugetlb")}}
	if !second.LimitsHugePages() || !first.LimitsHugePages() || (&Tree{mounts: map[string]string{}}).LimitsHugePages() {
		t.Error("not as the machine has it")
	}
	if err := first.Set("/pod", &specs.LinuxResources{HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2MB", Limit: 4 << 20}}}); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "hugetlb/pod/hugetlb.2MB.limit_in_bytes")); string(text) != "4194304" {
		t.Errorf("limit %q, %v", text, err)
	}
}

func TestReservations(t *testing.T) {
	t.Parallel()
	without := &Tree{unified: t.TempDir()}
	if without.LimitsReservations() || (&Tree{mounts: map[string]string{"hugetlb": "/x"}}).LimitsReservations() {
		t.Error("without the controller, or on version 1")
	}
}
