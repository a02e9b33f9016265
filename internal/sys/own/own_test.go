package own

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const another = 1234

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestDirectoryOfAnother: Mkdir rejects a directory that another user created, and does not change
// it.
func TestDirectoryOfAnother(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing", "one")
	for _, path := range []string{dir, missing, missing} {
		if err := Mkdir(path, 0o700); err != nil {
			t.Error(err)
		}
	}
	if info, err := os.Stat(missing); err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.Chown(dir, another, another); err != nil {
		t.Skip("needs root:", err)
	}
	before, err := os.Stat(dir)
	must(t, err)
	if err := Mkdir(dir, 0o711); err == nil {
		t.Error("another's directory is taken")
	}
	if after, err := os.Stat(dir); err != nil || after.Mode() != before.Mode() {
		t.Errorf("%v, %v", after, err)
	}
}

// TestWhoElseLeadsToDirectories: a directory of podrun's own is refused, and left alone, if another user could replace
// it or anything on the way to it. The directory is /up/own, which does not exist, or what path names; TOP is above.
func TestWhoElseLeadsToDirectories(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can give files to others")
	}
	const sticky = 0o777 | os.ModeSticky
	type step func(top string) error
	mkdir := func(path string) step { return func(top string) error { return os.Mkdir(top+path, 0o755) } }
	owned := func(path string) step { return func(top string) error { return os.Lchown(top+path, another, another) } }
	grouped := func(path string) step { return func(top string) error { return os.Lchown(top+path, 0, another) } }
	moded := func(path string, mode os.FileMode) step {
		return func(top string) error { return os.Chmod(top+path, mode) }
	}
	linked := func(path, target string) step {
		return func(top string) error { return os.Symlink(strings.Replace(target, "TOP", top, 1), top+path) }
	}
	all := func(steps ...step) step {
		return func(top string) (err error) {
			for _, do := range steps {
				err = errors.Join(err, do(top))
			}
			return err
		}
	}
	const both, own, neither = "both", "own", "" // what is refused: shared directories too, or only podrun's own
	for name, c := range map[string]struct {
		do      step
		path    string
		refused string
		says    string
	}{
		"nothing":                      {all(), "", neither, ""},
		"deep":                         {all(), "/up/a/b/own", neither, ""},
		"a sticky parent":              {moded("/up", sticky), "", neither, ""},
		"a parent is another's":        {owned("/up"), "", both, "/up: is owned by user 1234; chown root it, or choose another"},
		"a parent far above is":        {all(mkdir("/up/own"), owned("/up")), "/up/own/a/b", both, "/up: is owned by user 1234"},
		"a sticky parent is":           {all(moded("/up", sticky), owned("/up")), "", both, "/up: is owned by user 1234"},
		"a parent can be written":      {moded("/up", 0o777), "", both, "/up: can be written by every user (mode 0777); chmod go-w it"},
		"by a group":                   {all(grouped("/up"), moded("/up", 0o775)), "", own, "/up: can be written by group 1234"},
		"by root's group":              {moded("/up", 0o775), "", neither, ""},
		"another's in a sticky parent": {all(moded("/up", sticky), mkdir("/up/own"), owned("/up/own")), "", both, "/up/own: is owned"},
		"another's on the way":         {all(moded("/up", sticky), mkdir("/up/a"), owned("/up/a")), "/up/a/own", both, "/up/a: is owned"},
		"another's link":               {all(linked("/up/own", "TOP/far"), owned("/up/own")), "", both, "/up/own: is owned by user 1234"},
		"another's link on the way":    {all(moded("/up", sticky), linked("/up/a", "../far"), owned("/up/a")), "/up/a/own", both, "/up/a: is owned"},
		"a link":                       {linked("/up/own", "../far"), "", neither, ""},
		"where a link leads":           {all(mkdir("/far/own"), linked("/up/own", "TOP/far/own"), owned("/far")), "", both, "/far: is owned"},
		"what a link leads to":         {all(linked("/up/own", "TOP/far"), owned("/far")), "", both, "/far: is owned"},
		"all may write it":             {all(mkdir("/up/own"), moded("/up/own", 0o777)), "", neither, ""},
		"and another has": {all(mkdir("/up/own"), moded("/up/own", 0o777), mkdir("/up/own/bin"), owned("/up/own/bin")), "", both,
			"/up/own/bin: is owned by user 1234; chown root it, if it is what should be there"},
		"root has": {all(mkdir("/up/own"), moded("/up/own", 0o777), mkdir("/up/own/bin")), "", neither, ""},
		"within it is another's, whom root let in": {all(mkdir("/up/own"), mkdir("/up/own/x"), owned("/up/own/x")), "", neither, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, shared := range []bool{false, true} {
				top := t.TempDir()
				must(t, errors.Join(os.Chmod(top, 0o755), os.Mkdir(top+"/up", 0o755), os.Mkdir(top+"/far", 0o755), c.do(top)))
				path, make := top+c.path, Mkdir
				if c.path == "" {
					path += "/up/own"
				}
				if shared {
					make = MkdirShared
				}
				want := c.refused == both || !shared && c.refused == own
				before := tree(t, top)
				check := Check(path, shared)
				err := make(path, 0o711)
				if (err != nil) != want || want && !strings.Contains(err.Error(), c.says) {
					t.Errorf("shared %t: %v", shared, err)
				}
				if _, missing := os.Stat(path); (check != nil) != want && missing == nil {
					t.Errorf("shared %t: checked before: %v", shared, check)
				}
				after := tree(t, top)
				if info, _ := os.Stat(path); !want && (info == nil || !shared && info.Mode().Perm() != 0o711 || info.Mode().Perm()&0o002 != 0) {
					t.Errorf("shared %t: made %v", shared, info)
				}
				if want && after != before {
					t.Errorf("shared %t: refused, but changed\n%s\n%s", shared, before, after)
				}
			}
		})
	}
}

// tree is everything below top, with modes.
func tree(t *testing.T, top string) string {
	t.Helper()
	var all []string
	must(t, filepath.Walk(top, func(path string, info os.FileInfo, err error) error {
		all = append(all, path+" "+info.Mode().String())
		return err
	}))
	return strings.Join(all, "\n")
}

// TestMkdirRace: another user creates the directory just before podrun does.
func TestMkdirRace(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can give files to others")
	}
	for name, create := range map[string]func(dir string) error{
		"directory": func(dir string) error { return os.Mkdir(dir, 0o755) },
		"link":      func(dir string) error { return os.Symlink(t.TempDir(), dir) },
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			must(t, os.Chmod(top, 0o777|os.ModeSticky))
			made := 0
			_, err := way(filepath.Join(top, "a", "b"), false, func(dir string) error {
				made++
				return errors.Join(create(dir), os.Lchown(dir, another, another), mkdir(dir, 0o700))
			})
			if loose := (*LooseError)(nil); !errors.As(err, &loose) || made != 1 {
				t.Errorf("%d were made: %v", made, err)
			}
		})
	}
}

// TestDirectoryBehindALink: what only a link names is not created; a disk may be missing there.
func TestDirectoryBehindALink(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	must(t, errors.Join(os.Chmod(top, 0o755), os.Symlink("far/own", top+"/own"), os.Symlink(".", top+"/here")))
	if err := Mkdir(top+"/own/root", 0o700); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if _, err := os.Lstat(top + "/far"); err == nil {
		t.Error("the link's target was made")
	}
	if err := Mkdir(top+"/here/root/../run", 0o700); err != nil {
		t.Error(err)
	}
}

// TestCovers: a user is nobody's inside if the map of the user namespace does not have it.
func TestCovers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"         0          0 4294967295\n":     true, // outside of user namespaces
		"0 1000 1\n":                             false,
		"0 100000 65536\n":                       true,
		"0 100000 65534\n":                       false,
		"0 1000 1\n1 100000 65533\n":             false,
		"0 1000 1\n65534 100000 1\n":             true,
		"what this is, podrun does not know ...": true,
	} {
		if covers(text, overflowID) != want {
			t.Errorf("%q: %t", text, !want)
		}
	}
}
