package checkpoint

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
)

// slowDisk calls during, once, when a file is written and before its writer is told so.
type slowDisk struct {
	osDisk
	during func()
}

func (d *slowDisk) slowly(stamp Stamp, err error) (Stamp, error) {
	if during := d.during; during != nil {
		d.during = nil
		during()
	}
	return stamp, err
}

// Create implements Disk.
func (d *slowDisk) Create(uid pod.UID, data []byte) (Stamp, error) {
	return d.slowly(d.osDisk.Create(uid, data))
}

// Write implements Disk.
func (d *slowDisk) Write(uid pod.UID, data []byte) (Stamp, error) {
	return d.slowly(d.osDisk.Write(uid, data))
}

// besideWrite runs do, which writes a file of web's, and during while that has not ended. What during leaves running ends
// afterwards.
func besideWrite(t *testing.T, do, during func(s suite)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &slowDisk{osDisk: osDisk{layout.Dirs{Root: t.TempDir()}}}
		s := suite{T: t, store: NewStoreOn(d, slog.New(slog.DiscardHandler))}
		s.create("web", "u1")
		s.create("db", "u9")
		d.during = func() {
			if !s.store.mu.TryLock() {
				t.Fatal("the store is locked while a file is written")
			}
			s.store.mu.Unlock()
			during(s)
		}
		do(s)
		synctest.Wait()
		if d.during != nil {
			t.Error("nothing was written")
		}
	})
}

func evictWeb(s suite) { s.must(s.store.Update("u1", evict("full"))) }

// TestOthersBesideWrite: while a file is written, other pods' are read and written, and its own is what it was.
func TestOthersBesideWrite(t *testing.T) {
	t.Parallel()
	db := pod.Key{Namespace: "default", Name: "db"}
	besideWrite(t, evictWeb, func(s suite) {
		s.must(s.store.Update("u9", func(c *Checkpoint) {
			c.Evicted = "other"
			c.Instances = []pod.Container{{Name: "a", ID: "i9"}}
		}))
		s.create("db", "u8")
		s.want("list", s.list(s.store), "db: u8 u9, web: u1")
		s.want("of", s.of(s.store, db), "u8 u9")
		if c := s.store.OfInstance("i9"); c == nil || c.Evicted != "other" {
			t.Error("what was written of another pod is not shown")
		}
		if c, err := s.store.Get("u1"); err != nil || c.Evicted != "" {
			t.Errorf("what is being written is shown: %v", err)
		}
	})
	besideWrite(t, func(s suite) { s.create("web", "u2") }, func(s suite) {
		if _, err := s.store.Get("u2"); !errors.Is(err, ErrNotFound) {
			t.Errorf("what is being created is shown: %v", err)
		}
		s.want("list", s.list(s.store), "db: u9, web: u1")
	})
}

// TestSamePodBesideWrite: the writes of one pod follow one another.
func TestSamePodBesideWrite(t *testing.T) {
	t.Parallel()
	var s suite
	besideWrite(t, evictWeb, func(in suite) {
		s = in
		go func() { _ = s.store.Update("u1", func(c *Checkpoint) { c.Evicted += " again" }) }()
		synctest.Wait()
	})
	if c := s.store.files["u1"].checkpoint; c.Evicted != "full again" {
		t.Errorf("after two changes it is %q", c.Evicted)
	}
	besideWrite(t, func(s suite) { s.create("web", "u2") }, func(in suite) {
		s = in
		go func() {
			if err := s.store.Create(manifest("other", "u2"), "serve"); !errors.Is(err, ErrUIDInUse) {
				t.Errorf("creating another pod with the UID: %v", err)
			}
		}()
		go func() { _ = s.store.Create(manifest("web", "u3"), "serve") }()
		synctest.Wait()
	})
	if u2, u3 := s.store.files["u2"].checkpoint, s.store.files["u3"].checkpoint; u3.Sequence != u2.Sequence+1 {
		t.Errorf("two new revisions have the sequences %d and %d", u2.Sequence, u3.Sequence)
	}
}

// TestRemoveBesideWrite: what is written during a removal is not shown after it.
func TestRemoveBesideWrite(t *testing.T) {
	t.Parallel()
	var s suite
	besideWrite(t, evictWeb, func(in suite) {
		s = in
		go func() {
			if err := s.store.Remove(in.Context(), "u1"); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
	})
	if f := s.store.files["u1"]; f != nil {
		t.Error("after the removal it is still shown")
	}
}
