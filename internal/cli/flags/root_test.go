package flags

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/sys"
)

// TestWarnOfRoot: a command that reads another root directory than that of the pods says so; one that creates or removes
// pods fails by itself.
func TestWarnOfRoot(t *testing.T) {
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
	for _, c := range []struct {
		command string
		dirs    layout.Dirs
		warns   bool
	}{{"events", other, true}, {"diff", other, true}, {"events", mine, false}, {"serve", other, false}, {"down", other, false}} {
		var out bytes.Buffer
		WarnOfRoot(&out, c.command, c.dirs)
		if got := out.String(); (got != "") != c.warns || c.warns && (!strings.Contains(got, "--root-dir "+a) || !strings.Contains(got, b)) {
			t.Errorf("%s: %q", c.command, got)
		}
	}
}
