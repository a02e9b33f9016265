package filesource

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"podrun.io/podrun/internal/manifest"
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
			s := startFileWith(t, Options{Path: path})
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
