package links

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newDirs returns directories of a podrun that shares the directory of links with others.
func newDirs(t *testing.T, shared, name string) layout.Dirs {
	return layout.Dirs{Root: filepath.Join(shared, name, "root"), Log: filepath.Join(shared, name, "log"), LogLinks: filepath.Join(shared, "containers")}
}

func instance(id string, attempt int) pod.Instance {
	return pod.Instance{
		ID: strings.Repeat(id, 32), Key: pod.Key{Namespace: "ns", Name: "web-node1"}, UID: "u1", Container: "app", Attempt: attempt,
	}
}

// shown returns the links, by name, without the directory that all is in.
func shown(t *testing.T, dirs layout.Dirs) string {
	t.Helper()
	entries, err := os.ReadDir(dirs.LogLinks)
	must(t, err)
	var out []string
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join(dirs.LogLinks, e.Name()))
		if err != nil {
			to = "no link"
		}
		out = append(out, e.Name()+" -> "+strings.TrimPrefix(to, filepath.Dir(dirs.LogLinks)))
	}
	return strings.Join(out, "\n")
}

func TestLinks(t *testing.T) {
	t.Parallel()
	dirs := newDirs(t, t.TempDir(), "a")
	for range 2 { // also after a restart of podrun
		must(t, Create(dirs, instance("1", 0)))
	}
	must(t, Create(dirs, instance("2", 1)))
	first := "web-node1_ns_app-" + strings.Repeat("1", 32) + ".log -> /a/log/ns_web-node1_u1/app/0.log"
	second := "web-node1_ns_app-" + strings.Repeat("2", 32) + ".log -> /a/log/ns_web-node1_u1/app/1.log"
	if got := shown(t, dirs); got != first+"\n"+second {
		t.Fatalf("%s", got)
	}
	info, err := os.Stat(dirs.LogLinks)
	must(t, err)
	if info.Mode().Perm() != 0o755 {
		t.Errorf("collectors cannot list the links: %v", info.Mode())
	}
	other := instance("3", 0)
	other.Container = "sidecar"
	must(t, Create(dirs, other))
	for range 2 {
		must(t, RemoveUpTo(dirs, instance("1", 0)))
	}
	if got := shown(t, dirs); !strings.HasPrefix(got, second+"\n") {
		t.Errorf("%s", got)
	}
	must(t, RemoveUpTo(dirs, instance("2", 1)))
	if got := shown(t, dirs); strings.Contains(got, "_app-") || !strings.Contains(got, "_sidecar-") {
		t.Errorf("%s", got)
	}
	must(t, RemoveRevision(dirs, "u2"))
	must(t, RemoveRevision(dirs, "u1"))
	if got := shown(t, dirs); got != "" {
		t.Errorf("%s", got)
	}
}

// TestOthersLinks: nothing that podrun did not make is removed or replaced, whoever made it: another podrun with the
// same pod, the kubelet with the same log directory, or a user.
func TestOthersLinks(t *testing.T) {
	t.Parallel()
	shared := t.TempDir()
	dirs, another := newDirs(t, shared, "a"), newDirs(t, shared, "b")
	must(t, Create(dirs, instance("1", 0)))
	must(t, Create(another, instance("2", 0)))
	link := func(name, target string) { must(t, os.Symlink(target, filepath.Join(dirs.LogLinks, name))) }
	id := strings.Repeat("f", 32)
	link("web-node1_ns_app-"+id+id+".log", dirs.Log+"/ns_web-node1_u1/app/0.log") // the kubelet's
	link("mine.log", dirs.Log+"/ns_web-node1_u1/app/0.log")
	link("web-node1_ns_app-"+id+".log", "/var/log/syslog")
	link("web-node1_ns_db-"+id+".log", dirs.Log+"/ns_web-node1_u1/app/0.log")
	link("web-node1_ns_up-"+id+".log", dirs.Log+"/ns_web-node1_u1/../0.log")
	link("web-node1_ns_old-"+id+".log", dirs.Log+"/ns_web-node1_u1/old/0.log.2")
	must(t, os.WriteFile(filepath.Join(dirs.LogLinks, "file.log"), []byte("mine"), 0o600))
	must(t, os.Mkdir(filepath.Join(dirs.LogLinks, "directory"), 0o700))
	before := shown(t, dirs)
	must(t, RemoveUpTo(dirs, instance("1", 9)))
	must(t, RemoveRevision(dirs, "u1"))
	own := "web-node1_ns_app-" + strings.Repeat("1", 32) + ".log -> /a/log/ns_web-node1_u1/app/0.log\n"
	if got, want := shown(t, dirs), strings.Replace(before, own, "", 1); got != want || got == before {
		t.Errorf("left\n%s\nwant\n%s", got, want)
	}
	// What has the name that podrun needs stays, too.
	taken := instance("f", 0)
	if err := Create(dirs, taken); err == nil || !strings.Contains(err.Error(), "is not podrun's") {
		t.Errorf("%v", err)
	}
	if to, _ := os.Readlink(filepath.Join(dirs.LogLinks, nameOf(taken))); to != "/var/log/syslog" {
		t.Errorf("replaced by %s", to)
	}
	file := instance("e", 0)
	must(t, os.WriteFile(filepath.Join(dirs.LogLinks, nameOf(file)), []byte("mine"), 0o600))
	if err := Create(dirs, file); err == nil {
		t.Error("a file was replaced")
	}
}

// TestLongNames: a name that is too long loses the instance's ID, so the newest instance has the link.
func TestLongNames(t *testing.T) {
	t.Parallel()
	for _, length := range []int{150, 190, 200, 240} { // the ID is whole, cut, gone; the container's name is cut
		dirs := newDirs(t, t.TempDir(), "a")
		long := func(id string, attempt int) pod.Instance {
			i := instance(id, attempt)
			i.Key.Name, i.Container = strings.Repeat("p", length), strings.Repeat("c", 40)
			return i
		}
		must(t, Create(dirs, long("1", 0)))
		must(t, Create(dirs, long("2", 1)))
		got := strings.Split(shown(t, dirs), "\n")
		name, target, _ := strings.Cut(got[len(got)-1], " -> ")
		if len(name) > 255 || !strings.HasSuffix(target, "/1.log") || !strings.HasSuffix(name, ".log") {
			t.Errorf("%d: %s", length, got)
		}
		must(t, RemoveUpTo(dirs, long("1", 0)))
		if got := shown(t, dirs); !strings.HasSuffix(got, "/1.log") || strings.Contains(got, "\n") {
			t.Errorf("%d: %s", length, got)
		}
		must(t, RemoveRevision(dirs, "u1"))
		if got := shown(t, dirs); got != "" {
			t.Errorf("%d: left %s", length, got)
		}
	}
}

// TestWithoutDirectory: without a directory there are no links; one that another user can replace is not used.
func TestWithoutDirectory(t *testing.T) {
	t.Parallel()
	dirs := newDirs(t, t.TempDir(), "a")
	must(t, RemoveRevision(dirs, "u1")) // it does not exist
	none := dirs
	none.LogLinks = ""
	must(t, Create(none, instance("1", 0)))
	must(t, RemoveRevision(none, "u1"))
	if _, err := os.Lstat(dirs.LogLinks); err == nil {
		t.Error("the directory was made for nothing")
	}
	must(t, os.WriteFile(dirs.LogLinks, nil, 0o600))
	if err := Create(dirs, instance("1", 0)); err == nil {
		t.Error("a link in a file")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: it gives a directory to another user")
	}
	must(t, os.Remove(dirs.LogLinks))
	must(t, os.Mkdir(dirs.LogLinks, 0o755))
	must(t, os.Chown(dirs.LogLinks, 1000, 0))
	if err := Create(dirs, instance("1", 0)); err == nil || !strings.Contains(err.Error(), "owned by user 1000") {
		t.Errorf("in a directory of another user's: %v", err)
	}
}
