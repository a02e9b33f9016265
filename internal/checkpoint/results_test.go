package checkpoint

import (
	"os"
	"slices"
	"strings"
	"testing"

	"podrun.io/podrun/internal/pod"
)

// TestResults: a stored result outlives the revision's data, is no run of a Job, and becomes the checkpoint of a pod that
// has none. One that cannot be read stays and hides no other.
func TestResults(t *testing.T) {
	t.Parallel()
	s, d := onOS(t)
	for _, name := range []string{"a", "b"} {
		p := manifest(name, pod.UID("uid-"+name))
		if err := s.Create(p, "once"); err != nil {
			t.Fatal(err)
		}
		ended := pod.Container{ID: "i-" + name, Name: "c", State: pod.Exited}
		ended.ExitCode = 3
		if err := s.Update(p.UID, func(c *Checkpoint) { c.Instances = []pod.Container{ended} }); err != nil {
			t.Fatal(err)
		}
		if err := SaveResult(s, p.UID); err != nil {
			t.Fatal(err)
		}
	}
	if err := SaveResult(s, "uid-none"); err != nil {
		t.Errorf("without a checkpoint: %v", err)
	}
	if err := s.Remove(t.Context(), "uid-a"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.RunPath("Result_default_torn"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if found := runs(t, s); len(found) != 0 {
		t.Errorf("runs: %q", found)
	}
	s = NewStoreOn(d, s.log)
	if err := RestoreResults(s, "serve"); err == nil || !strings.Contains(err.Error(), d.RunPath("Result_default_torn")) {
		t.Errorf("error %v", err)
	}
	for uid, owner := range map[pod.UID]string{"uid-a": "serve", "uid-b": "once"} {
		c, err := NewStoreOn(d, s.log).Get(uid)
		if err != nil || c.Owner != owner || len(c.Instances) != 1 || c.Instances[0].ExitCode != 3 {
			t.Errorf("%s: %+v, %v", uid, c, err)
		}
	}
	if names, err := d.RunNames(); err != nil || !slices.Equal(names, []string{"Result_default_torn"}) {
		t.Errorf("left: %v, %v", names, err)
	}
}
