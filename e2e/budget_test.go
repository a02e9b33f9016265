package e2e

import (
	"debug/buildinfo"
	"os"
	"runtime/debug"
	"slices"
	"testing"
)

// What the binary may be. Whoever raises a number says why in the commit.
const (
	// mostBytes: 46 MB are podrun and containerd, 3 MB its shim, which saves 4 MB of memory for each pod.
	mostBytes = 50_600_000
	// mostModules are those that the binary consists of, beside podrun and Go.
	mostModules = 103
)

// TestBudgets: the binary grows by decision, not by accident.
func TestBudgets(t *testing.T) {
	if !wanted() {
		t.Skip("end-to-end tests run as root by make e2e (PODRUN_E2E=1)")
	}
	st, err := os.Stat(setup.podrun)
	must(t, err)
	if st.Size() > mostBytes {
		t.Errorf("%s has %d bytes, more than %d", setup.podrun, st.Size(), mostBytes)
	}
	info, err := buildinfo.ReadFile(setup.podrun)
	must(t, err)
	// Without the tag it is its own shim, which costs 5 MB more for each pod.
	tagged := slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "-tags" && s.Value == "ownshim" })
	if !tagged {
		t.Errorf("it was built without its shim's program: %v", info.Settings)
	}
	if n := len(info.Deps); n > mostModules {
		t.Errorf("it consists of %d modules, more than %d", n, mostModules)
	}
}
