package problems

import (
	"os"
	"testing"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/test"
)

// TestProblemsOfAnEarlierBoot: a file that a loss of power has left incomplete is no file.
func TestProblemsOfAnEarlierBoot(t *testing.T) {
	t.Parallel()
	dirs := layout.Dirs{Run: t.TempDir()}
	for _, text := range []string{"", `[{"manifest":`} {
		test.Must(t, os.WriteFile(dirs.StatusFiles().ManifestProblems(), []byte(text), 0o600))
		if all, err := Read(dirs); err != nil || len(all) != 0 {
			t.Errorf("of %q: %v, %v", text, all, err)
		}
	}
}
