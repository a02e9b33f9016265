package internal_test

import (
	"go/ast"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPatchesApply: the patches of make simulate-check and make security-check apply, and what the latter name are tests
// that make security runs.
func TestPatchesApply(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip(err)
	}
	text, err := os.ReadFile("../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{}
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.test {
				tests[f.Name.Name+" ./"+s.dir] = true
			}
		}
	}
	names := regexp.MustCompile(`(?m)^Test: ((\S+) \S+)$`)
	for dir, attacks := range map[string]bool{"internal/agent/testdata/defects": false, "testdata/attacks": true} {
		patches, err := filepath.Glob("../" + dir + "/*.patch")
		if err != nil || len(patches) == 0 {
			t.Errorf("%s has no patch: %v", dir, err)
		}
		for _, patch := range patches {
			check := exec.Command("git", "apply", "--check", strings.TrimPrefix(patch, "../"))
			check.Dir = ".."
			if out, err := check.CombinedOutput(); err != nil {
				t.Errorf("%s: write it again: %v: %s", patch, err, out)
			}
			if !attacks {
				continue
			}
			header, err := os.ReadFile(patch)
			if err != nil {
				t.Fatal(err)
			}
			named := names.FindAllStringSubmatch(string(header), -1)
			if len(named) == 0 {
				t.Errorf("%s names no test", patch)
			}
			for _, m := range named {
				if !tests[m[1]] || !strings.Contains(string(text), "`"+m[2]+"`") {
					t.Errorf("%s: %s is no test that docs/security.md names", patch, m[1])
				}
			}
		}
	}
}
