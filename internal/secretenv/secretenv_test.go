package secretenv

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
)

const spec = `{"ociVersion":"1.0.2","process":{"args":["sh","$(PASS)"],"env":["PODRUN_WITHHELD=%","A=1"],"user":{"uid":0}},` +
	`"root":{"path":"rootfs"},"linux":{"resources":{"memory":{"limit":9223372036854775807}}}}`

// The stand-in's root directory has two pods. One has the container id, whose bundle is another directory.
type standIn struct {
	path, dir, other, bundle string
	kept                     Process
}

const id = "0123456789abcdef0123456789abcdef"

func newStandIn(t *testing.T) standIn {
	t.Helper()
	dirs := layout.Dirs{Root: t.TempDir()}
	s := standIn{
		path: dirs.StandIn(""), dir: dirs.Revision("one").Withheld(), other: dirs.Revision("other").Withheld(), bundle: t.TempDir(),
		kept: Process{Args: []string{"sh", "word"}, Env: []string{"A=1", "PASS=word"}},
	}
	forged := filepath.Join(s.bundle, "forged")
	must(t, os.MkdirAll(s.dir, 0o700), os.MkdirAll(s.other, 0o700), os.Mkdir(filepath.Join(dirs.Pods(), "without"), 0o700),
		Write(s.dir, id, s.kept),
		os.WriteFile(forged, []byte(`{"args":["forged"],"env":["FORGED=1"]}`), 0o600),
		os.WriteFile(s.bundle+"/config.json", []byte(strings.Replace(spec, "%", forged, 1)), 0o600))
	return s
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func (s standIn) create(id string) ([]string, error) {
	args := []string{"create", "--bundle", s.bundle, "--pid-file", "p", id}
	return args, forCreate(s.path, args)
}

func TestCreate(t *testing.T) {
	s := newStandIn(t)
	victim := filepath.Join(s.bundle, "victim")
	own := filepath.Join(s.dir, id+".bundle")
	// Whatever is there is replaced, and not followed.
	must(t, os.Mkdir(own, 0o700), os.WriteFile(victim, nil, 0o600),
		os.Symlink(victim, own+"/config.json"), os.Symlink(victim, own+"/config.json.new"))
	args, err := s.create(id)
	must(t, err)
	if want := []string{"create", "--bundle", own, "--pid-file", "p", id}; !slices.Equal(args, want) {
		t.Errorf("%q", args)
	}
	got, err := os.ReadFile(own + "/config.json")
	var out struct {
		Process struct {
			Args, Env []string
		}
		Root struct{ Path string }
	}
	must(t, err, json.Unmarshal(got, &out))
	if !slices.Equal(out.Process.Args, s.kept.Args) || !slices.Equal(out.Process.Env, s.kept.Env) || out.Root.Path != s.bundle+"/rootfs" {
		t.Errorf("%s", got)
	}
	if !strings.Contains(string(got), "9223372036854775807") || !strings.Contains(string(got), `"user":{"uid":0}`) {
		t.Errorf("not all is kept: %s", got)
	}
	if text, err := os.ReadFile(victim); err != nil || len(text) > 0 {
		t.Errorf("a link was followed: %s, %v", text, err)
	}
	must(t, Remove(s.dir, id), Remove(s.dir, id), Remove(s.dir+"/none", id))
	if left, err := os.ReadDir(s.dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	if _, err := s.create(id); err == nil {
		t.Error("no error without what is withheld")
	}
}

// TestWhatIsNotTheContainersFile: only a file with the mode and owner that podrun sets is read, and
// only the one named by the ID.
func TestWhatIsNotTheContainersFile(t *testing.T) {
	text := []byte(`{"args":["forged"]}`)
	for name, forge := range map[string]func(file string) error{
		"a link":        func(file string) error { return os.Symlink(file+".other", file) },
		"a magic link":  func(file string) error { return os.Symlink("/proc/self/cwd", file) },
		"a directory":   func(file string) error { return os.Mkdir(file, 0o600) },
		"a pipe":        func(file string) error { return unix.Mkfifo(file, 0o600) },
		"for others":    func(file string) error { return errors.Join(os.WriteFile(file, text, 0o600), os.Chmod(file, 0o644)) },
		"of a setuid":   func(file string) error { return errors.Join(os.WriteFile(file, text, 0o600), unix.Chmod(file, 0o4600)) },
		"too large":     func(file string) error { return errors.Join(os.WriteFile(file, text, 0o600), os.Truncate(file, 1<<40)) },
		"of no process": func(file string) error { return os.WriteFile(file, []byte("x"), 0o600) },
		"of others": func(file string) error {
			if os.Geteuid() != 0 {
				return nil // missing then
			}
			return errors.Join(os.WriteFile(file, text, 0o600), os.Chown(file, 65534, 0))
		},
	} {
		s := newStandIn(t)
		file := filepath.Join(s.dir, id+".json")
		must(t, os.WriteFile(file+".other", text, 0o600), os.Remove(file), forge(file))
		if args, err := s.create(id); err == nil || args[2] != s.bundle {
			t.Errorf("%s: %q, %v", name, args, err)
		}
	}
	s := newStandIn(t)
	for _, other := range []string{"", "..", ".", "../one/" + id, "-" + id, id + "/", id + ".json", "/" + id, id + "\x00", strings.Repeat("a", 65), "other"} {
		if args, err := s.create(other); err == nil || args[2] != s.bundle {
			t.Errorf("ID %q: %q, %v", other, args, err)
		}
		if err := Write(s.dir, other, s.kept); err == nil && other != "other" {
			t.Errorf("ID %q: written", other)
		}
	}
	// A directory that leads elsewhere.
	must(t, os.Rename(s.dir, s.dir+".elsewhere"), os.Symlink(s.dir+".elsewhere", s.dir))
	if args, err := s.create(id); err == nil {
		t.Errorf("by way of a link: %q", args)
	}
	if err := Write(s.dir, id, s.kept); err == nil {
		t.Error("written by way of a link")
	}
	if err := Write(s.other, id, Process{Env: []string{strings.Repeat("x", maxSize)}}); err == nil {
		t.Error("written what would not be read")
	}
}

func TestCreateFails(t *testing.T) {
	s := newStandIn(t)
	for _, args := range [][]string{{"create", id}, {"create", "--bundle", "/none", id}, {"create", "--bundle", s.bundle}} {
		if err := forCreate(s.path, args); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
	if err := forCreate("podrun-runc", []string{"create", "--bundle", s.bundle, id}); err == nil {
		t.Error("a stand-in somewhere")
	}
	for _, text := range []string{`{}`, `{"process":{}}`, `{"process":{},"root":[]}`, `[`} {
		must(t, os.WriteFile(s.bundle+"/config.json", []byte(text), 0o600))
		if _, err := s.create(id); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}

func TestExec(t *testing.T) {
	s := newStandIn(t)
	file := s.bundle + "/p"
	must(t, os.WriteFile(file, fmt.Appendf(nil, `{"args":["env"],"env":["A=2","PODRUN_WITHHELD=%s/forged","TERM=xterm"]}`, s.bundle), 0o600))
	args := []string{"exec", "--process", file, "--detach", id}
	must(t, forExec(s.path, args))
	got, err := os.ReadFile(args[2])
	want := fmt.Sprintf(`{"args":["env"],"env":["A=2","PODRUN_WITHHELD=%s/forged","TERM=xterm","PASS=word"]}`, s.bundle)
	if err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
	if !strings.HasPrefix(args[2], "/proc/self/fd/") {
		t.Errorf("written to %s", args[2])
	}
	if err := forExec(s.path, []string{"exec", "--process", file, "other"}); err == nil {
		t.Error("no error without what is withheld")
	}
}

func TestAdopt(t *testing.T) {
	s := newStandIn(t)
	readied := 0
	ready := func() error { readied++; return nil }
	if err := Adopt(s.dir, "c", id, ready); !errors.Is(err, fs.ErrNotExist) || readied != 0 {
		t.Errorf("without a file of the former version's: %v, %d", err, readied)
	}
	file := filepath.Join(s.dir, id+".json")
	must(t, os.Rename(file, filepath.Join(s.dir, "c")))
	if err := Adopt(s.dir, "c", id, func() error { return fs.ErrInvalid }); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("it is not ready: %v", err)
	}
	for range 2 {
		must(t, Adopt(s.dir, "c", id, ready))
	}
	if readied != 1 {
		t.Errorf("readied %d times", readied)
	}
	_, err := s.create(id)
	must(t, err)
}

func TestCommandAt(t *testing.T) {
	for line, want := range map[string]int{
		"--root /r --log create --log-format json create --bundle b id": 6,
		"--debug exec id":  1,
		"--root=/r delete": 1,
		"--version":        -1,
	} {
		if got := commandAt(strings.Fields(line)); got != want {
			t.Errorf("%s: %d", line, got)
		}
	}
}

func TestDispatchIsForTheStandInOnly(t *testing.T) {
	for _, args := range [][]string{nil, {"podrun"}, {"/x/containerd-shim-runc-v2"}} {
		if _, handled := Dispatch(args); handled {
			t.Errorf("%q", args)
		}
	}
}

func TestProgram(t *testing.T) {
	dir := t.TempDir()
	write := func(at string) string {
		if err := os.WriteFile(at, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return at
	}
	runc, other := write(dir+"/runc"), write(dir+"/other")
	t.Setenv("PATH", dir)
	own := filepath.Join(dir, "own", "podrun-runc")
	for range 2 { // each start does it
		if err := standFor(own, "other"); err != nil {
			t.Fatal(err)
		}
	}
	if err := standFor(own, "/another"); err == nil {
		t.Error("it stands for two")
	}
	for path, want := range map[string]string{filepath.Join(dir, "podrun-runc"): runc, own: other} {
		if got, err := program(path); err != nil || got != want {
			t.Errorf("%s runs %s, %v; want %s", path, got, err, want)
		}
	}
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	if got, err := program(own); err == nil {
		t.Errorf("what is gone is replaced by %s", got)
	}
}
