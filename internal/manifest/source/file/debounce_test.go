package file

import (
	"path/filepath"
	"testing"
	"time"

	"podrun.io/podrun/internal/manifest"
)

// Editors move the old file aside before they write the new one.
func TestFileThatIsAway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	put(t, a, podText("a", "i:1")+"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n")
	put(t, b, podText("b", "i:1"))
	s, now := newScanner(dir, "node1"), time.Now()
	look := func(after time.Duration) scanResult {
		now = now.Add(after)
		return s.scan(now)
	}
	want := func(text string, objects int) {
		t.Helper()
		if got := s.snapshot(); says(got) != text || len(got.Objects) != objects {
			t.Errorf("got %q with %d objects, want %q with %d", says(got), len(got.Objects), text, objects)
		}
	}
	look(0)
	want("a=i:1 b=i:1", 1)

	move(t, a, a+"~")
	if f := look(time.Second); f.changed || f.again != absence {
		t.Errorf("went: %+v", f)
	}
	put(t, b, podText("b", "i:2")) // what else happens meanwhile
	if f := look(absence / 2); !f.changed || f.again <= 0 || f.again > absence/2 {
		t.Errorf("something else: %+v", f)
	}
	want("a=i:1 b=i:2", 1)
	move(t, a+"~", a)
	look(time.Hour)
	want("a=i:1 b=i:2", 1)

	// Each absence counts by itself, and one that lasts is a removal.
	remove(t, a)
	if f := look(time.Hour); f.changed {
		t.Errorf("went again: %+v", f)
	}
	if f := look(absence); !f.changed || f.again != 0 {
		t.Errorf("removed: %+v", f)
	}
	want("b=i:2", 0)

	// What has moved is where it is now, and only there.
	c := filepath.Join(dir, "c.yaml")
	move(t, b, c)
	if f := look(time.Second); !f.changed {
		t.Errorf("renamed: %+v", f)
	}
	want("b=i:2", 0)
	if got := manifest.OriginOf(s.snapshot().Pods[0]).Path; got != c {
		t.Errorf("b is of %s", got)
	}
	look(absence)
	want("b=i:2", 0)
	// A bad file that nothing was known of leaves no trace.
	put(t, b, "{")
	look(time.Second)
	want("b=i:2 bad b.yaml", 0)
	remove(t, b)
	look(time.Second)
	look(absence)
	want("b=i:2", 0)
}
