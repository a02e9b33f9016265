package runtimetest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// testEnv checks that variables reach the process unchanged, and that references to them in its
// command line are replaced.
func testEnv(t *testing.T, s subject) {
	p := s.newPod("web-node", "uid-env", "main")
	c := &p.Spec.Containers[0]
	c.Command = append(c.Command, "$(A) $$(A) $(NONE)")
	start := s.ready(t, p)
	start.Env = []pod.Variable{
		{Name: "A", Value: "x $(B)"}, {Name: "odd.name", Value: ""}, {Name: "B", Value: "line\nline"},
	}
	instance := s.start(t, start)
	if s.Runs {
		if got := s.output(t, instance.ID,
			`printf '%s|' "$A" "$B"; tr '\0' '\n' </proc/1/environ | grep -c '^odd.name=$'`,
		); got != "x $(B)|line\nline|1" {
			t.Errorf("%q", got)
		}
		if got := s.output(t, instance.ID,
			`tr '\0' '|' </proc/1/cmdline | sed 's/.*|\(.*\)|$/\1/'`,
		); got != "x $(B) $(A) $(NONE)" {
			t.Errorf("command line %q", got)
		}
	}
	s.remove(t, p)
}

// testShow checks that the files of an image are visible until the revision's data is removed.
func testShow(t *testing.T, s subject) {
	p := s.newPod("web-node", "uid-show", "main")
	must(t, s.SavePod(p, "serve"))
	image, err := s.Resolve(t.Context(), s.Image)
	must(t, err)
	path, err := s.Show(t.Context(), image, p.UID, "tools")
	must(t, err)
	again, err := s.Show(t.Context(), image, p.UID, "tools")
	if err != nil || again != path {
		t.Errorf("a repeat shows it in %s, %v", again, err)
	}
	other, err := s.Show(t.Context(), image, p.UID, "more")
	if err != nil || other == path {
		t.Errorf("another volume shows it in %s, %v", other, err)
	}
	if _, err := s.Show(
		t.Context(), pod.Image{Name: "podrun.example/none:1"}, p.UID, "none",
	); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("no such image: %v", err)
	}
	if s.Runs {
		if _, err := os.Stat(filepath.Join(path, "bin", "sh")); err != nil {
			t.Error(err)
		}
		if err := os.WriteFile(filepath.Join(path, "x"), nil, 0o644); err == nil {
			t.Error("it can be written")
		}
	}
	for range 2 {
		must(t, s.RemoveData(t.Context(), pod.KeyOf(p), p.UID))
	}
	if _, err := os.Stat(path); s.Runs && !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left: %v", err)
	}
}
