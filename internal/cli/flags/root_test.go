package flags

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/test"
)

// TestOtherRoot: a command that reads another root directory than that of the pods says so; one that creates or removes
// pods fails by itself.
func TestOtherRoot(t *testing.T) {
	t.Parallel()
	boot, err := sys.BootID()
	if err != nil {
		t.Fatal(err)
	}
	a, b, run := t.TempDir(), t.TempDir(), t.TempDir()
	mine, other := layout.Dirs{Root: a, Run: run}, layout.Dirs{Root: b, Run: run}
	if err := os.WriteFile(mine.Binding(), []byte(boot+"\npodrun\nembedded\n"+a+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := OtherRoot("events", other); got != "" {
		t.Errorf("without pods: %s", got)
	}
	test.Must(t, os.MkdirAll(filepath.Join(mine.Pods(), "u1"), 0o700))
	for _, c := range []struct {
		command string
		dirs    layout.Dirs
		warns   bool
	}{{"events", other, true}, {"diff", other, true}, {"events", mine, false}, {"serve", other, false}, {"down", other, false}, {"convert", other, false}} {
		got := OtherRoot(c.command, c.dirs)
		if (got != "") != c.warns || c.warns && (!strings.Contains(got, "--root-dir "+a) || !strings.Contains(got, b)) {
			t.Errorf("%s: %q", c.command, got)
		}
	}
}
