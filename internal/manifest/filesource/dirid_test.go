package filesource

import (
	"os"
	"path/filepath"
	"testing"
)

// A directory that is empty when podrun starts: is it the one that pods came from?
func TestEmptyDirectoryAtStart(t *testing.T) {
	t.Parallel()
	emptied := func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "a.yaml")) }
	replaced := func(t *testing.T, dir string) {
		move(t, dir, dir+".away") // it stays, so that its inode is not given to the other
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		change func(*testing.T, string)
		runs   bool
		want   string
	}{
		"emptied":                     {emptied, true, ""},
		"another":                     {replaced, true, "error"},
		"another, of which none runs": {replaced, false, ""},
		"another with a manifest": {func(t *testing.T, dir string) {
			replaced(t, dir)
			put(t, filepath.Join(dir, "b.yaml"), podText("b", "i:1"))
		}, true, "b=i:1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := t.TempDir()
			o := Options{Path: filepath.Join(top, "pods"), IdentityDir: filepath.Join(top, "kept"), Runs: c.runs}
			if err := os.Mkdir(o.Path, 0o700); err != nil {
				t.Fatal(err)
			}
			put(t, filepath.Join(o.Path, "a.yaml"), podText("a", "i:1"))
			t.Run("first", func(t *testing.T) { startFileWith(t, o).until("a=i:1") }) // until it has ended
			c.change(t, o.Path)
			s := startFileWith(t, o)
			s.until(c.want)
			if c.want == "error" {
				remove(t, o.Path) // the disk is mounted
				move(t, o.Path+".away", o.Path)
				s.until("a=i:1")
			}
		})
	}
}

// What is kept may be what a loss of power left.
func TestPlaceThatCannotBeRead(t *testing.T) {
	t.Parallel()
	o := Options{IdentityDir: t.TempDir()}
	p := newDirID(o, "/m")
	for _, text := range []string{"", "x", "-1"} {
		if err := os.WriteFile(p.file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := p.read(); err != nil || p.kept != 0 {
			t.Errorf("of %q came %d, %v", text, p.kept, err)
		}
	}
	if err := os.Remove(p.file); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(p.file, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := p.read(); err == nil {
		t.Error("a directory was read")
	}
}
