package sections

import (
	"os"
	"path/filepath"
	"testing"
)

// TestSections: a measurement replaces its own section of the page and leaves the others.
func TestSections(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "page.md")
	write := func(heading, text string) {
		t.Helper()
		if err := Write(file, heading, text); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want string) {
		t.Helper()
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("got %q, want %q; %v", got, want, err)
		}
	}
	write(Relist, "\nlists\n")
	check("# Benchmarks\n\n## Full lists\n\nlists\n")
	write(Idle, "\nidle 1\n")
	write(Idle, "\nidle 2\n")
	check("# Benchmarks\n\n## Idle pods\n\nidle 2\n\n## Full lists\n\nlists\n")
	write(Relist, "\nlists 2\n")
	want := "\n\n## Idle pods\n\nidle 2\n\n## Full lists\n\nlists 2\n"
	check("# Benchmarks" + want)
	if got := Kept(file); got != want {
		t.Errorf("kept %q", got)
	}
	if got := Kept(filepath.Join(t.TempDir(), "absent")); got != "\n" {
		t.Errorf("kept %q of nothing", got)
	}
}
