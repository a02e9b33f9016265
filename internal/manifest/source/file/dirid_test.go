package file

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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

// TestEmptyDirectoryOnPurpose: the error of an empty directory in place of another says how its pods are removed, and
// that is so, while podrun runs and when it starts, also when the manifest is gone again.
func TestEmptyDirectoryOnPurpose(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		top := t.TempDir()
		o := Options{Path: filepath.Join(top, "pods"), IdentityDir: filepath.Join(top, "kept"), Runs: true}
		if err := os.Mkdir(o.Path, 0o700); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(o.Path, "a.yaml"), podText("a", "i:1"))
		replace := func() {
			move(t, o.Path, o.Path+".away")
			if err := os.Mkdir(o.Path, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		t.Run("first", func(t *testing.T) {
			s := startFileWith(t, o)
			if s.until("a=i:1"); !restart {
				replace()
				s.until("error")
			}
		})
		if restart {
			replace()
		}
		t.Run("second", func(t *testing.T) {
			s := startFileWith(t, o)
			_, way, said := strings.Cut(s.until("error").Err.Error(), "put a manifest there that says so: ")
			if !said {
				t.Fatalf("the error says no way out: %v", s.last.Err)
			}
			put(t, filepath.Join(o.Path, "none.yaml"), way)
			s.until("")
		})
		remove(t, filepath.Join(o.Path, "none.yaml"))
		t.Run("third", func(t *testing.T) { startFileWith(t, o).until("") })
	}
}

// What is kept may be what a loss of power left.
func TestDirIDThatCannotBeRead(t *testing.T) {
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

// TestPathOfAnotherKind: a file in a directory's place, or a directory in a file's, is what manifests are in only when
// one is there that can be used, while podrun runs and when it starts.
func TestPathOfAnotherKind(t *testing.T) {
	t.Parallel()
	file := func(text string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) { put(t, path, text) }
	}
	dir := func(name, text string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
			if name != "" {
				put(t, filepath.Join(path, name), text)
			}
		}
	}
	const none = "apiVersion: v1\nkind: List\nitems: []\n"
	cases := map[string]struct {
		before, after   func(*testing.T, string)
		want, atRestart string
	}{
		"junk for a directory":     {dir("a.yaml", podText("a", "i:1")), file("x"), "error", "blind pods"},
		"nothing for a directory":  {dir("a.yaml", podText("a", "i:1")), file(""), "error", "blind pods"},
		"FIFO for a directory":     {dir("a.yaml", podText("a", "i:1")), fifo, "error", "blind pods"},
		"a file for a directory":   {dir("a.yaml", podText("a", "i:1")), file(podText("a", "i:2")), "a=i:2", "a=i:2"},
		"none for a directory":     {dir("a.yaml", podText("a", "i:1")), file(none), "", ""},
		"empty for a file":         {file(podText("a", "i:1")), dir("", ""), "error", "error"},
		"other files for a file":   {file(podText("a", "i:1")), dir("README", "x"), "error", "error"},
		"junk for a file":          {file(podText("a", "i:1")), dir("a.yaml", "x"), "error", "blind a.yaml"},
		"a directory for a file":   {file(podText("a", "i:1")), dir("a.yaml", podText("b", "i:1")), "b=i:1", "b=i:1"},
		"no manifest's for a file": {file(podText("a", "i:1")), dir("a.yaml", none), "", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, restart := range []bool{false, true} {
				top := t.TempDir()
				o := Options{Path: filepath.Join(top, "pods"), IdentityDir: filepath.Join(top, "kept"), Runs: true}
				swap := func() {
					move(t, o.Path, o.Path+".away")
					c.after(t, o.Path)
				}
				want := c.want
				c.before(t, o.Path)
				if restart {
					t.Run("first", func(t *testing.T) { startFileWith(t, o).until("a=i:1") }) // until it has ended
					swap()
					want = c.atRestart
				}
				s := startFileWith(t, o)
				if !restart {
					s.until("a=i:1")
					swap()
				}
				s.until(want)
				remove(t, o.Path)
				move(t, o.Path+".away", o.Path)
				s.until("a=i:1")
			}
		})
	}
}

func fifo(t *testing.T, path string) {
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
}
