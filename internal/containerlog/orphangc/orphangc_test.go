package orphangc

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/containerlog/links"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/test"
)

// left is what is left of pods.
type left struct {
	runtime.Lister
	pods []pod.Observed
	err  error
}

func (l left) List(context.Context) ([]pod.Observed, error) { return l.pods, l.err }

var must = test.Must

// logDir is a directory of pods' logs.
type logDir struct {
	t testing.TB
	Collector
}

func newLogDir(t testing.TB, pods left) logDir {
	t.Helper()
	dir := t.TempDir()
	SetOwner(dir, "x")
	if !hasOwner(dir, "x") {
		t.Skip("attributes of files are for root, where the file system has them")
	}
	return logDir{t, Collector{Dirs: layout.Dirs{Root: dir + "/root", Run: dir + "/run", Log: dir + "/log"}, Pods: pods}}
}

// put makes logs that were written to two hours ago, of a pod that podrun kept below root.
func (s logDir) put(name, root string) string {
	s.t.Helper()
	dir := filepath.Join(s.Dirs.Log, name)
	file := filepath.Join(dir, "c", "0.log")
	must(s.t, os.MkdirAll(filepath.Dir(file), 0o755))
	must(s.t, os.WriteFile(file, []byte("a line\n"), 0o640))
	if root != "" {
		SetOwner(dir, root)
	}
	at := time.Now().Add(-2 * time.Hour)
	for _, path := range []string{file, filepath.Dir(file), dir} {
		must(s.t, os.Chtimes(path, at, at))
	}
	return dir
}

func (s logDir) names() []string {
	s.t.Helper()
	entries, err := os.ReadDir(s.Dirs.Log)
	must(s.t, err)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestOldLogsOfPodsThatAreGone(t *testing.T) {
	t.Parallel()
	s := newLogDir(t, left{pods: []pod.Observed{{
		Containers: []pod.Container{{UID: "contained"}}, Sandboxes: []pod.Sandbox{{UID: "sandboxed"}},
	}}})
	root := s.Dirs.Root
	for _, name := range []string{"ns_gone_u1", "ns_gone-too_u_2", "ns_contained_contained", "ns_sandboxed_sandboxed", "ns_kept_kept", "ns_young_u3", "journal", "_x_y"} {
		s.put(name, root)
	}
	must(t, os.MkdirAll(s.Dirs.Pod("kept"), 0o755))
	must(t, os.WriteFile(filepath.Join(s.Dirs.Log, "ns_young_u3", "c", "1.log"), nil, 0o640))
	s.put("kube-system_etcd_u4", "")                // the kubelet's
	s.put("ns_other_u5", root+"2")                  // another podrun's
	s.put("ns_other_u6", root[:len(root)-1])        // and one's whose name is shorter
	must(t, os.Symlink(s.put("ns_real_kept", root), // kept, and a link to it is nobody's
		filepath.Join(s.Dirs.Log, "ns_link_u7")))
	must(t, os.WriteFile(filepath.Join(s.Dirs.Log, "ns_file_u8"), nil, 0o640))
	s.Dirs.LogLinks = filepath.Dir(s.Dirs.Log) + "/containers"
	for _, name := range []string{"gone", "young"} { // a link that leads nowhere
		i := pod.Instance{ID: strings.Repeat("0", 32), Key: pod.Key{Namespace: "ns", Name: name}, UID: "u1", Container: "c"}
		if name == "young" {
			i.UID = "u3"
		}
		must(t, links.Create(s.Dirs, i))
	}

	removed, err := s.Remove(t.Context(), time.Hour)
	if left, err := filepath.Glob(s.Dirs.LogLinks + "/*"); err != nil || len(left) != 1 || !strings.Contains(left[0], "/young_ns_c-") {
		t.Errorf("links are left: %q, %v", left, err)
	}
	if want := []string{"ns_gone-too_u_2", "ns_gone_u1"}; err != nil || !slices.Equal(removed, want) {
		t.Errorf("removed %q, %v; want %q", removed, err, want)
	}
	want := []string{"_x_y", "journal", "kube-system_etcd_u4", "ns_contained_contained", "ns_file_u8", "ns_kept_kept", "ns_link_u7",
		"ns_other_u5", "ns_other_u6", "ns_real_kept", "ns_sandboxed_sandboxed", "ns_young_u3"}
	if got := s.names(); !slices.Equal(got, want) {
		t.Errorf("there are %q\nwant %q", got, want)
	}
	if removed, err := s.Remove(t.Context(), 0); err != nil || !slices.Equal(removed, []string{"ns_young_u3"}) {
		t.Errorf("whatever their age: removed %q, %v", removed, err)
	}
}

// TestOldLogsStayUnlessSure: no log is removed if the pods cannot be listed, or if something is
// mounted in the log directory.
func TestOldLogsStayUnlessSure(t *testing.T) {
	t.Parallel()
	s := newLogDir(t, left{err: runtime.ErrUnavailable})
	dir := s.put("ns_gone_u1", s.Dirs.Root)
	if removed, err := s.Remove(t.Context(), 0); !errors.Is(err, runtime.ErrUnavailable) || len(removed) > 0 {
		t.Errorf("%q, %v", removed, err)
	}
	s.Pods = left{}
	must(t, unix.Mount("podrun", filepath.Join(dir, "c"), "tmpfs", 0, ""))
	removed, err := s.Remove(t.Context(), 0)
	must(t, unix.Unmount(filepath.Join(dir, "c"), 0))
	if err == nil || len(removed) > 0 {
		t.Errorf("with somebody's mount in it: %q, %v", removed, err)
	}
	if removed, err := s.Remove(t.Context(), 0); err != nil || len(removed) != 1 {
		t.Errorf("without: %q, %v", removed, err)
	}
	must(t, os.Remove(s.Dirs.Log))
	if _, err := s.Remove(t.Context(), 0); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestOldLogsOfAPodThatComesBack: if the pod is created again, at whatever moment, its logs are
// there.
func TestOldLogsOfAPodThatComesBack(t *testing.T) {
	t.Parallel()
	s := newLogDir(t, left{})
	dir := s.put("ns_web_u1", s.Dirs.Root)
	must(t, os.MkdirAll(s.Dirs.Pod("u1"), 0o755)) // after it was seen that there is none
	if gone, err := s.remove("ns_web_u1"); err != nil || gone {
		t.Errorf("%v, %v", gone, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "c", "0.log")); err != nil {
		t.Error(err)
	}
	// The same, cut off: the next look makes it good.
	aside := filepath.Join(s.Dirs.Log, removing+"ns_web_u1")
	must(t, os.Rename(dir, aside))
	if removed, err := s.Remove(t.Context(), time.Hour); err != nil || len(removed) > 0 {
		t.Errorf("%q, %v", removed, err)
	}
	if got := s.names(); !slices.Equal(got, []string{"ns_web_u1"}) {
		t.Errorf("there are %q", got)
	}
	// It has begun new logs already: the old ones go.
	must(t, os.Rename(dir, aside))
	s.put("ns_web_u1", s.Dirs.Root)
	if _, err := s.Remove(t.Context(), time.Hour); err != nil {
		t.Error(err)
	}
	if got := s.names(); !slices.Equal(got, []string{"ns_web_u1"}) {
		t.Errorf("there are %q", got)
	}
	// Cut off with the pod gone for good.
	must(t, os.Remove(s.Dirs.Pod("u1")))
	must(t, os.Rename(dir, aside))
	if removed, err := s.Remove(t.Context(), time.Hour); err != nil || len(removed) != 1 || len(s.names()) > 0 {
		t.Errorf("%q, %v; there are %q", removed, err, s.names())
	}
}
