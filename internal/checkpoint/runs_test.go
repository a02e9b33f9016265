package checkpoint

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"podrun.io/podrun/internal/checkpoint/layout"
)

// runs returns the stored runs by namespace and name: the history, or the error.
func runs(t *testing.T, s *Store) map[string]string {
	t.Helper()
	all, err := s.Runs()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, r := range all {
		found[r.Namespace+"/"+r.Name] = string(r.History)
		if r.Err != nil {
			found[r.Namespace+"/"+r.Name] = "error: " + r.Err.Error()
		}
	}
	return found
}

// TestRuns: a run takes the place of the last one of its Job, and of no other's; it is removed alone.
func TestRuns(t *testing.T) {
	t.Parallel()
	s, d := onOS(t)
	if found := runs(t, s); len(found) != 0 {
		t.Errorf("before the first: %q", found)
	}
	for _, r := range []Run{
		{Namespace: "a", Name: "b-c", History: json.RawMessage(`1`)},
		{Namespace: "a-b", Name: "c", History: json.RawMessage(`2`)},
		{Namespace: "a", Name: "b-c", History: json.RawMessage(`3`)},
	} {
		if err := s.SaveRun(r); err != nil {
			t.Fatal(err)
		}
	}
	if found := runs(t, NewStoreOn(d, s.log)); len(found) != 2 || found["a/b-c"] != "3" || found["a-b/c"] != "2" {
		t.Errorf("stored: %q", found)
	}
	for range 2 { // none is no error
		if err := s.RemoveRun(Run{Namespace: "a", Name: "b-c"}); err != nil {
			t.Error(err)
		}
	}
	if found := runs(t, s); len(found) != 1 || found["a-b/c"] != "2" {
		t.Errorf("after the removal: %q", found)
	}
}

// TestRunsThatCannotBeRead: a run that cannot be read is known as one, so that its Job does not begin again, and hides
// no other run.
func TestRunsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	s, d := onOS(t)
	if err := s.SaveRun(Run{Namespace: "a", Name: "good", History: json.RawMessage(`1`)}); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"a_torn": `{"version":1,"namesp`, "a_empty": "", "a_later": `{"version":9999,"namespace":"a","name":"later"}`,
		"a_moved": `{"version":1,"namespace":"a","name":"other","history":1}`,
	} {
		if err := os.WriteFile(d.RunPath(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(t, layout.Runs(d.dirs)+"/a_new.json.tmp")
	found := runs(t, s)
	if len(found) != 5 || found["a/good"] != "1" {
		t.Errorf("found %q", found)
	}
	for _, name := range []string{"a/torn", "a/empty", "a/later", "a/moved"} {
		if !strings.HasPrefix(found[name], "error: ") {
			t.Errorf("%s: %q", name, found[name])
		}
	}
	all, _ := s.Runs()
	if !slices.ContainsFunc(all, func(r Run) bool { return errors.Is(r.Err, ErrLater) }) {
		t.Error("none is of a later version")
	}
}
