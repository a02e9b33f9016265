package lint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPermissions: validate says of files that other users could change what serve does with them: a warning, and with
// strict permissions a refusal, also of what belongs to another user where serve reads it.
func TestPermissions(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root, to give files to other users")
	}
	const text = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, image: 'web:1'}]}\n"
	dir := t.TempDir()
	for name, owned := range map[string]bool{"foreign": true, "loose": false} {
		path := filepath.Join(dir, name+".yaml")
		if err := os.WriteFile(path, []byte(strings.Replace(text, "web}", name+"}", 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if owned {
			if err := os.Chown(path, 65534, 65534); err != nil {
				t.Fatal(err)
			}
		} else if err := os.Chmod(path, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	served := func(strict bool) func(string) (bool, bool) {
		return func(string) (bool, bool) { return true, strict }
	}
	for name, c := range map[string]struct {
		o                 Options
		warnings, refused string // by the names of the files
	}{
		"a draft":               {warnings: "loose"},
		"a draft, strict":       {o: Options{StrictPermissions: true}, refused: "foreign loose"},
		"of serve":              {o: Options{Served: served(false)}, warnings: "foreign loose"},
		"of serve, strict":      {o: Options{Served: served(true)}, refused: "foreign loose"},
		"strict, but for serve": {o: Options{Served: served(false), StrictPermissions: true}, refused: "foreign loose"},
	} {
		c.o.NodeName = "n"
		f, err := Check(t.Context(), []string{dir}, c.o)
		if err != nil {
			t.Fatal(err)
		}
		warned, refused := strings.Join(f.Warnings, "\n"), ""
		for _, err := range f.unreadable {
			refused += err.Error() + "\n"
		}
		for _, file := range []string{"foreign", "loose"} {
			if got := strings.Contains(warned, file+".yaml"); got != strings.Contains(c.warnings, file) {
				t.Errorf("%s: warnings %q", name, warned)
			}
			if got := strings.Contains(refused, file+".yaml"); got != strings.Contains(c.refused, file) {
				t.Errorf("%s: refused %q", name, refused)
			}
		}
		if f.Valid != (c.refused == "") {
			t.Errorf("%s: valid %v", name, f.Valid)
		}
	}
}
