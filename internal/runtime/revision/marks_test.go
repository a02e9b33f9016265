package revision

import (
	"os"
	"reflect"
	"testing"
	"time"

	"podrun.io/podrun/internal/pod"
)

// marked are files with the mark of an instance.
func marked(t *testing.T, uid pod.UID, id string) *Files {
	t.Helper()
	f := files(t, "boot-1")
	if err := os.MkdirAll(f.o.Dirs.StartedOf(uid), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := f.Mark(uid, id, pod.Notes{PostStartDue: true}); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestMarks(t *testing.T) {
	t.Parallel()
	f := marked(t, "uid-1", "a")
	put(t, f.o.Dirs.Started("uid-1", "cut")) // its first line is not whole
	if err := os.MkdirAll(f.o.Dirs.Started("uid-1", "odd"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		boot, id string
		want     bool
	}{{"boot-1", "a", true}, {"boot-2", "a", false}, {"boot-1", "b", false}, {"boot-1", "cut", false}, {"boot-1", "odd", true}} {
		if got := f.next(tt.boot).Marked("uid-1", tt.id); got != tt.want {
			t.Errorf("%s in %s: %t", tt.id, tt.boot, got)
		}
	}
	for range 2 {
		if err := f.Unmark("uid-1", "a"); err != nil || f.Marked("uid-1", "a") {
			t.Errorf("unmarked: %v", err)
		}
	}
}

// TestNotes: the note that counts is the last whole one, for this podrun and the next, and it goes with the mark.
func TestNotes(t *testing.T) {
	t.Parallel()
	f := marked(t, "uid-1", "a")
	is := func(when string, want pod.Notes) {
		t.Helper()
		for by, files := range map[string]*Files{"podrun": f, "the next podrun": f.next("boot-1")} {
			if got := files.NotesOf("uid-1", "a"); !reflect.DeepEqual(got, want) {
				t.Errorf("%s, %s: %+v, want %+v", when, by, got, want)
			}
		}
	}
	is("marked", pod.Notes{PostStartDue: true})
	asked := pod.Notes{Signals: pod.Signals{Asked: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)}}
	noted := asked
	noted.Hooking = true // this podrun's own
	if err := f.Note("uid-1", "a", noted); err != nil {
		t.Fatal(err)
	}
	is("noted", asked)
	file, err := os.OpenFile(f.o.Dirs.Started("uid-1", "a"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, cut := range []string{"\n{\"Asked\":\"2026-01-", "\n{\"Unwanted\":true}"} {
		if _, err := file.WriteString(cut); err != nil {
			t.Fatal(err)
		}
		is("with what was cut off after "+cut, asked)
	}
	failed := pod.Notes{Failed: &pod.Failed{Why: "failed liveness probe", Message: "a\nb"}}
	if err := f.Note("uid-1", "a", failed); err != nil {
		t.Fatal(err)
	}
	is("with another after that", failed)
	if !f.next("boot-1").Marked("uid-1", "a") {
		t.Error("the mark is gone")
	}
	if err := f.Unmark("uid-1", "a"); err != nil {
		t.Fatal(err)
	}
	is("unmarked", pod.Notes{})
	if err := f.Note("uid-1", "a", failed); err != nil || exists(f.o.Dirs.Started("uid-1", "a")) {
		t.Errorf("a note made a mark: %v", err)
	}
}
