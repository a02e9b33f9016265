package file

import (
	"cmp"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/sys/own"
)

func chmod(t testing.TB, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// warnings are a snapshot's, a line each, without what the path begins with.
func warnings(s manifest.Snapshot, prefix string) string {
	var all []string
	for _, w := range s.Warnings {
		all = append(all, strings.TrimPrefix(w.Err.Error(), prefix))
	}
	return strings.Join(all, "\n")
}

func TestFileSourceWarnsOfWhatOthersCanWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := filepath.Join(dir, "a.yaml")
	put(t, a, podText("a", "i:1"))
	s := startFile(t, dir)
	if got := warnings(s.until("a=i:1"), dir); got != "" {
		t.Errorf("warned: %s", got)
	}
	first := s.last.Pods[0]
	chmod(t, a, 0o646)
	want := "/a.yaml: can be written by every user (mode 0646); chmod go-w it"
	if got := warnings(s.until("a=i:1"), dir); got != want {
		t.Errorf("warned: %s", got)
	}
	chmod(t, a, 0o644)
	if got := warnings(s.until("a=i:1"), dir); got != "" || s.last.Pods[0] != first {
		t.Errorf("mended, but warned: %s", got)
	}
}

func TestWhatOthersCanWrite(t *testing.T) {
	t.Parallel()
	make := func(t *testing.T) (dir, file string) {
		dir = t.TempDir()
		chmod(t, dir, 0o755)
		file = filepath.Join(dir, "a.yaml")
		put(t, file, podText("a", "i:1"))
		return dir, file
	}
	for _, c := range []struct {
		name    string
		prepare func(t *testing.T, dir, file string) (path string)
		want    string // how the warning begins, after the directory; empty: none
	}{
		{"nobody", func(_ *testing.T, dir, _ string) string { return dir }, ""},
		{"all, the file", func(t *testing.T, dir, file string) string { chmod(t, file, 0o602); return dir }, "/a.yaml: can be written by every user"},
		{"all, the directory", func(t *testing.T, dir, _ string) string { chmod(t, dir, 0o777); return dir }, ": can be written by every user"},
		{"all, a sticky directory", func(t *testing.T, dir, _ string) string { chmod(t, dir, 0o777|os.ModeSticky); return dir }, ": can be written by every user"},
		{"all, a single file's directory", func(t *testing.T, dir, file string) string { chmod(t, dir, 0o777); return file }, ": can be written by every user"},
		{"all, a single file's sticky directory", func(t *testing.T, dir, file string) string { chmod(t, dir, 0o777|os.ModeSticky); return file }, ""},
		{"all, where a link leads", func(t *testing.T, dir, file string) string {
			elsewhere := t.TempDir()
			chmod(t, elsewhere, 0o755)
			if err := os.Symlink(file, filepath.Join(elsewhere, "b.yaml")); err != nil {
				t.Fatal(err)
			}
			chmod(t, dir, 0o777)
			return elsewhere
		}, ": can be written by every user"},
		{"a group", func(t *testing.T, dir, file string) string {
			if os.Getuid() != 0 {
				t.Skip("only root can give files to other groups")
			}
			chmod(t, file, 0o664)
			if err := os.Chown(file, 0, 1234); err != nil {
				t.Fatal(err)
			}
			return dir
		}, "/a.yaml: can be written by group 1234"},
		{"root's group", func(t *testing.T, dir, file string) string {
			if os.Getuid() != 0 {
				t.Skip("only root's files are of root's group")
			}
			chmod(t, file, 0o664)
			return dir
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir, file := make(t)
			path := c.prepare(t, dir, file)
			s := startFileWith(t, Options{Path: path, Lasting: true})
			if got := warnings(s.until("a=i:1"), dir); (got == "") != (c.want == "") || !strings.HasPrefix(got, c.want) {
				t.Errorf("warned: %s, want %s", got, c.want)
			}
			w := startFileWith(t, Options{Path: path, StrictPermissions: true})
			strict := <-w.out
			refused := strict.Err
			if len(strict.Problems) > 0 {
				refused = strict.Problems[0].Err
			}
			switch {
			case c.want == "" && (refused != nil || len(strict.Pods) != 1):
				t.Errorf("refused: %v", refused)
			case c.want != "" && (refused == nil || len(strict.Pods) != 0 || !strings.HasPrefix(strings.TrimPrefix(refused.Error(), dir), c.want)):
				t.Errorf("refused: %v, want %s", refused, c.want)
			}
		})
	}
}

// step prepares something below a directory.
type step func(top string) error

const otherUser = 1234

func owned(path string) step {
	return func(top string) error { return os.Lchown(top+path, otherUser, otherUser) }
}

func grouped(path string) step {
	return func(top string) error { return os.Lchown(top+path, 0, otherUser) }
}

func moded(path string, mode os.FileMode) step {
	return func(top string) error { return os.Chmod(top+path, mode) }
}

func linked(path, target string) step {
	return func(top string) error {
		return os.Symlink(strings.Replace(target, "TOP", top, 1), top+path)
	}
}

func moved(from, to string) step {
	return func(top string) error { return os.Rename(top+from, top+to) }
}

// listedIn gives a directory an access control list by which a user (2) or a group (8) may write it.
func listedIn(path string, tag, id uint16) step {
	const none, all = 0xffff, 7
	entries := [][4]uint16{{1, all, none, none}, {4, all, none, none}, {16, all, none, none}, {32, 5, none, none}}
	entries = append(entries, [4]uint16{tag, all, id, 0})
	slices.SortFunc(entries, func(a, b [4]uint16) int { return int(a[0]) - int(b[0]) })
	text := []byte{2, 0, 0, 0}
	for _, e := range entries {
		for _, n := range e {
			text = binary.LittleEndian.AppendUint16(text, n)
		}
	}
	return func(top string) error { return unix.Setxattr(top+path, "system.posix_acl_access", text, 0) }
}

// TestWhoElseLeadsToManifests: who may change what is on the way to a manifest may write the manifest. What is read is
// /up/pods, with a.yaml in it, or what path names; there is /far/pods/a.yaml, too.
func TestWhoElseLeadsToManifests(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can give files to others")
	}
	const sticky = 0o777 | os.ModeSticky
	aside := []step{moved("/up/pods/a.yaml", "/far/pods/c.yaml"), linked("/up/pods/a.yaml", "../../far/pods/c.yaml")}
	for name, c := range map[string]struct {
		steps []step
		path  string
		want  string // how the warning begins; "": none
	}{
		"root":                         {},
		"a file is another's":          {[]step{owned("/up/pods/a.yaml")}, "", "/up/pods/a.yaml: is owned by user 1234; chown root"},
		"a directory is another's":     {[]step{owned("/up/pods")}, "", "/up/pods: is owned by user 1234"},
		"a parent is another's":        {[]step{owned("/up")}, "", "/up: is owned by user 1234"},
		"a file's parent is":           {[]step{owned("/up")}, "/up/pods/a.yaml", "/up: is owned by user 1234"},
		"a parent can be written":      {[]step{moded("/up", 0o777)}, "", "/up: can be written by every user (mode 0777)"},
		"a file's parent can":          {[]step{moded("/up", 0o777)}, "/up/pods/a.yaml", "/up: can be written by every user"},
		"by a group":                   {[]step{grouped("/up"), moded("/up", 0o775)}, "", "/up: can be written by group 1234"},
		"by root's group":              {[]step{moded("/up", 0o775)}, "", ""},
		"by a list's user":             {[]step{listedIn("/up", 2, otherUser)}, "", "/up: can be written by user 1234 by its"},
		"by a list's group":            {[]step{listedIn("/up", 8, otherUser)}, "", "/up: can be written by group 1234 by its"},
		"by a list's root":             {[]step{listedIn("/up", 2, 0)}, "", ""},
		"a sticky parent":              {[]step{moded("/up", sticky)}, "", ""},
		"another's in a sticky parent": {[]step{moded("/up", sticky), owned("/up/pods")}, "", "/up/pods: is owned by user 1234"},
		"another's sticky parent":      {[]step{moded("/up", sticky), owned("/up")}, "", "/up: is owned by user 1234"},
		"where a link leads":           {[]step{linked("/near/link", "../far/pods"), owned("/far")}, "/near/link", "/far: is"},
		"the place of a link": {[]step{linked("/near/link", "TOP/far/pods"), moded("/near", 0o777)}, "/near/link",
			"/near: can be written by every user"},
		"a link": {[]step{linked("/near/link", "TOP/far/pods"), moded("/near", sticky), owned("/near/link")}, "/near/link",
			"/near/link: is owned by user 1234"},
		"a link on the way": {[]step{linked("/near/link", "../far"), moded("/far", 0o777)}, "/near/link/pods",
			"/far: can be written by every user"},
		"links that all are root's":              {[]step{linked("/near/a", "../far/../far"), linked("/near/b", "TOP/near/a/pods")}, "/near/b", ""},
		"where a manifest that is a link leads":  {append(aside, moded("/far", 0o777)), "", "/far: can be written by every user"},
		"a manifest that is another's link":      {append(aside, owned("/up/pods/a.yaml")), "", "/up/pods/a.yaml: is owned"},
		"a manifest that is a link to another's": {append(aside, owned("/far/pods/c.yaml")), "", "/up/pods/a.yaml: is owned"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := t.TempDir()
			err := os.Chmod(top, 0o755)
			for _, dir := range []string{"/up/pods", "/far/pods", "/near"} {
				err = errors.Join(err, os.MkdirAll(top+dir, 0o755))
			}
			if err != nil {
				t.Fatal(err)
			}
			put(t, top+"/up/pods/a.yaml", podText("a", "i:1"))
			put(t, top+"/far/pods/a.yaml", podText("a", "i:1"))
			for _, do := range c.steps {
				if err := do(top); errors.Is(err, unix.ENOTSUP) {
					t.Skip("no access control lists here")
				} else if err != nil {
					t.Fatal(err)
				}
			}
			path := top + cmp.Or(c.path, "/up/pods")
			s := startFileWith(t, Options{Path: path, Lasting: true})
			got := warnings(s.until("a=i:1"), top)
			if (got == "") != (c.want == "") || !strings.HasPrefix(got, c.want) || strings.Contains(got, "\n") {
				t.Errorf("warned: %q, want %q", got, c.want)
			}
			strict := <-startFileWith(t, Options{Path: path, StrictPermissions: true}).out
			refused := strict.Err
			if len(strict.Problems) > 0 {
				refused = strict.Problems[0].Err
			}
			switch {
			case c.want == "" && (refused != nil || len(strict.Pods) != 1):
				t.Errorf("refused: %v", refused)
			case c.want != "" && (refused == nil || len(strict.Pods) != 0 ||
				!strings.HasPrefix(strings.TrimPrefix(refused.Error(), top), c.want)):
				t.Errorf("refused: %v, want %s", refused, c.want)
			}
		})
	}
}

// TestLooseOnWay: a path of links without end is none.
func TestLooseOnWay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := errors.Join(os.Symlink("b", dir+"/a"), os.Symlink("a", dir+"/b")); err != nil {
		t.Fatal(err)
	}
	if all := own.LooseOnWay(dir + "/a/x"); len(all) != 0 {
		t.Errorf("%v", all)
	}
}

func TestStrictPermissionsKeepWhatRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := filepath.Join(dir, "a.yaml")
	put(t, a, podText("a", "i:1"))
	s := startFileWith(t, Options{Path: dir, StrictPermissions: true})
	s.until("a=i:1")
	chmod(t, a, 0o666)
	s.until("a=i:1 bad a.yaml")
	put(t, a, podText("a", "i:2"))
	s.until("a=i:2")
	chmod(t, dir, 0o777)
	s.until("error")
	chmod(t, dir, 0o755)
	s.until("a=i:2")
}

// TestOwnersOfWhatIsRunOnce: a working copy that is somebody else's is warned of by who takes manifests from it for good,
// and is used without a word by who names it once; what anybody can write is warned of by both, and strictly both refuse.
func TestOwnersOfWhatIsRunOnce(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to give files away")
	}
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"owned.yaml": 0o644, "open.yaml": 0o666} {
		path := filepath.Join(dir, name)
		pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: " + strings.TrimSuffix(name, ".yaml") + "}\nspec: {containers: [{name: c, image: i}]}\n"
		if err := errors.Join(os.WriteFile(path, []byte(pod), mode), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(filepath.Join(dir, "owned.yaml"), 1000, 1000); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		o    Options
		want []string // of whom it is warned
	}{
		{Options{Lasting: true}, []string{"open.yaml", "owned.yaml"}},
		{Options{}, []string{"open.yaml"}},
	} {
		c.o.Path, c.o.NodeName = dir, "n"
		var got []string
		snap := Read(t.Context(), c.o)
		for _, w := range snap.Warnings {
			if filepath.Dir(w.Origin.Path) == dir {
				got = append(got, filepath.Base(w.Origin.Path))
			}
		}
		if !slices.Equal(got, c.want) || len(snap.Pods) != 2 {
			t.Errorf("lasting %t: warned of %q, %d pods", c.o.Lasting, got, len(snap.Pods))
		}
	}
	if snap := Read(t.Context(), Options{Path: dir, NodeName: "n", StrictPermissions: true}); len(snap.Pods) != 0 {
		t.Errorf("strictly: %d pods", len(snap.Pods))
	}
}
