package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
)

// testDisk is a disk under test that can be made to fail.
type testDisk struct {
	Disk
	// corrupt replaces the content of a file.
	corrupt func(uid pod.UID, data []byte)

	mu     sync.Mutex
	writes int
	// failWrite and failRead are the errors of writing and reading; nil means that they succeed.
	failWrite, failRead error
	// listed is called after a listing unless it is nil.
	listed func()
}

func (d *testDisk) count() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.writes++
	return d.failWrite
}

// Create implements Disk.
func (d *testDisk) Create(uid pod.UID, data []byte) (Stamp, error) {
	if err := d.count(); err != nil {
		return Stamp{}, err
	}
	return d.Disk.Create(uid, data)
}

// Write implements Disk.
func (d *testDisk) Write(uid pod.UID, data []byte) (Stamp, error) {
	if err := d.count(); err != nil {
		return Stamp{}, err
	}
	return d.Disk.Write(uid, data)
}

// WriteDurable implements Disk.
func (d *testDisk) WriteDurable(uid pod.UID, data []byte) (Stamp, error) {
	if err := d.count(); err != nil {
		return Stamp{}, err
	}
	return d.Disk.WriteDurable(uid, data)
}

// Read implements Disk.
func (d *testDisk) Read(uid pod.UID) ([]byte, Stamp, error) {
	d.mu.Lock()
	err := d.failRead
	d.mu.Unlock()
	if err != nil {
		return nil, Stamp{}, err
	}
	return d.Disk.Read(uid)
}

// List implements Disk.
func (d *testDisk) List() ([]pod.UID, error) {
	all, err := d.Disk.List()
	if d.listed != nil {
		d.listed()
	}
	return all, err
}

// suite is a store on a disk, and another process' store on the same disk.
type suite struct {
	*testing.T
	disk         *testDisk
	store, other *Store
	log          *bytes.Buffer
}

// onBothDisks runs a test on the file system and on the disk in memory.
func onBothDisks(t *testing.T, f func(s suite)) {
	t.Helper()
	run := func(name string, disk func(t *testing.T) *testDisk) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var text bytes.Buffer
			d, log := disk(t), slog.New(slog.NewTextHandler(&text, nil))
			f(suite{t, d, NewStoreOn(d, log), NewStoreOn(d.Disk, slog.New(slog.DiscardHandler)), &text})
		})
	}
	run("os", func(t *testing.T) *testDisk {
		d := osDisk{layout.Dirs{Root: t.TempDir()}}
		return &testDisk{Disk: d, corrupt: func(uid pod.UID, data []byte) {
			if err := os.WriteFile(d.Path(uid), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}}
	})
	run("memory", func(*testing.T) *testDisk {
		m := NewMemory(nil)
		return &testDisk{Disk: m, corrupt: m.Corrupt}
	})
}

func manifest(name string, uid pod.UID) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: uid}}
}

var web = pod.Key{Namespace: "default", Name: "web"}

func (s suite) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s suite) create(name string, uid pod.UID) {
	s.Helper()
	s.must(s.store.Create(manifest(name, uid), "serve"))
}

// of returns the UIDs of the pod's checkpoints in a store.
func (s suite) of(store *Store, key pod.Key) string {
	s.Helper()
	all, err := store.Of(key)
	s.must(err)
	return uids(all)
}

// list returns the checkpoints of all pods in a store.
func (s suite) list(store *Store) string {
	s.Helper()
	all, err := store.List()
	s.must(err)
	var lines []string
	for key, of := range all {
		lines = append(lines, key.Name+": "+uids(of))
	}
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}

func uids(all []*Checkpoint) string {
	var out []string
	for _, c := range all {
		out = append(out, string(c.UID()))
	}
	return strings.Join(out, " ")
}

func (s suite) want(what, got, want string) {
	s.Helper()
	if got != want {
		s.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func evict(why string) func(*Checkpoint) { return func(c *Checkpoint) { c.Evicted = why } }

func TestCreateUpdateRemove(t *testing.T) {
	t.Parallel()
	onBothDisks(t, func(s suite) {
		if err := s.store.Update("u1", evict("x")); !errors.Is(err, ErrNotFound) {
			t.Errorf("updating what is not there: %v", err)
		}
		if _, err := s.store.Get("u1"); !errors.Is(err, ErrNotFound) {
			t.Errorf("getting what is not there: %v", err)
		}
		s.create("web", "u1")
		before, err := s.store.Get("u1")
		s.must(err)
		s.must(s.store.Update("u1", func(c *Checkpoint) {
			c.Sandboxes = append(c.Sandboxes, pod.Sandbox{ID: "s1", UID: "u1"})
			c.Instances = append(c.Instances, pod.Container{ID: "c1", Name: "c", UID: "u1"})
		}))
		if len(before.Sandboxes) != 0 {
			t.Error("a checkpoint that was returned has changed")
		}
		for _, store := range []*Store{s.store, s.other} {
			c, err := store.Get("u1")
			s.must(err)
			if c.Sandbox("s1") == nil || c.Instance("c1") == nil || c.Owner != "serve" || c.Sequence != 1 || c.Key() != web {
				t.Errorf("%+v", c)
			}
			if store.OfSandbox("s1") != c || store.OfInstance("c1") != c || store.OfSandbox("c1") != nil || store.OfInstance("no") != nil {
				t.Error("not found by its IDs")
			}
		}
		s.must(s.store.Update("u1", func(c *Checkpoint) { c.DropSandbox("s1"); c.DropInstance("c1") }))
		if s.store.OfSandbox("s1") != nil || s.store.OfInstance("c1") != nil {
			t.Error("found by an ID that it no longer names")
		}
		s.must(s.store.Remove(t.Context(), "u1"))
		s.must(s.store.Remove(t.Context(), "u1"))
		if _, err := s.other.Get("u1"); !errors.Is(err, ErrNotFound) {
			t.Errorf("after its removal: %v", err)
		}
		s.want("list", s.list(s.store), "")
	})
}

func TestNothingChangedWritesNothing(t *testing.T) {
	t.Parallel()
	onBothDisks(t, func(s suite) {
		s.create("web", "u1")
		s.must(s.store.Update("u1", evict("x")))
		before, err := s.store.Get("u1")
		s.must(err)
		writes := s.disk.writes
		s.must(s.store.Update("u1", func(*Checkpoint) {}))
		s.must(s.store.Update("u1", evict("x")))
		s.must(s.store.Update("u1", func(c *Checkpoint) { c.Pod = c.Pod.DeepCopy() }))
		s.create("web", "u1")
		if after, err := s.store.Get("u1"); err != nil || after != before || s.disk.writes != writes {
			t.Errorf("written %d times, %v", s.disk.writes-writes, err)
		}
		// Also changes that another process has written.
		s.must(s.other.Update("u1", evict("x")))
		s.must(NewStoreOn(s.disk, slog.New(slog.DiscardHandler)).Update("u1", evict("x")))
		if s.disk.writes != writes {
			t.Error("written though nothing has changed")
		}
	})
}

func TestNewestFirst(t *testing.T) {
	t.Parallel()
	onBothDisks(t, func(s suite) {
		s.create("web", "u9")
		s.create("web", "u1")
		s.create("db", "u2")
		s.want("list", s.list(s.store), "db: u2, web: u1 u9")
		s.want("of", s.of(s.other, web), "u1 u9")
		s.create("web", "u9") // wanted again while what came between is still there
		s.want("of, again", s.of(s.store, web), "u9 u1")
		s.want("of, for another", s.of(s.other, web), "u9 u1")
		s.must(s.store.Remove(t.Context(), "u9"))
		s.want("of, one removed", s.of(s.other, web), "u1")
		s.create("web", "u5")
		s.want("of, a third", s.of(s.other, web), "u1") // it has not scanned
		s.must(s.other.Scan())
		s.want("of, scanned", s.of(s.other, web), "u5 u1")
	})
}

// TestUIDOfAnotherPod: a pod does not get the checkpoint of another pod.
func TestUIDOfAnotherPod(t *testing.T) {
	t.Parallel()
	onBothDisks(t, func(s suite) {
		s.create("web", "u1")
		for _, store := range []*Store{s.store, s.other} {
			if err := store.Create(manifest("db", "u1"), "serve"); !errors.Is(err, ErrUIDInUse) {
				t.Errorf("got %v", err)
			}
		}
		s.want("list", s.list(s.store), "web: u1")
		s.must(s.store.Remove(t.Context(), "u1"))
		s.must(s.other.Create(manifest("db", "u1"), "once"))
		s.want("list, later", s.list(s.store), "db: u1")
		s.want("of", s.of(s.store, web), "")
	})
}

func TestUnreadable(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"empty": "", "zeros": strings.Repeat("\x00", 100), "torn": `{"version":1,"pod":{"meta`, "no pod": `{"version":1}`,
		"another's":  `{"version":1,"pod":{"metadata":{"name":"web","uid":"u2"}}}`,
		"no version": `{"pod":{"metadata":{"name":"web","uid":"u1"}}}`, "other types": `{"version":1,"instances":7}`,
	} {
		t.Run(name, func(t *testing.T) {
			onBothDisks(t, func(s suite) {
				s.create("web", "u1")
				s.create("db", "u3")
				s.disk.corrupt("u1", []byte(text))
				for range 3 {
					s.want("list", s.list(s.store), "db: u3")
				}
				if said := strings.Count(s.log.String(), "cannot be read"); said != 1 || !strings.Contains(s.log.String(), s.disk.Path("u1")) {
					t.Errorf("said %d times: %s", said, s.log)
				}
				if _, err := s.store.Get("u1"); err == nil || errors.Is(err, ErrNotFound) || len(s.store.Errors()) == 0 {
					t.Errorf("got %v", err)
				}
				if err := s.store.Update("u1", evict("x")); err == nil {
					t.Error("it was updated")
				}
				s.must(s.store.Sweep(t.Context()))
				if _, err := s.disk.Stat("u1"); err != nil {
					t.Errorf("it is not kept: %v", err)
				}
				s.create("web", "u1")
				s.want("list, started again", s.list(s.other), "db: u3, web: u1")
				if len(s.store.Errors()) > 0 {
					t.Error("it is unreadable still")
				}
			})
		})
	}
}

// TestLaterVersion: a file of a later version of podrun is not changed, whatever it contains.
func TestLaterVersion(t *testing.T) {
	t.Parallel()
	onBothDisks(t, func(s suite) {
		s.create("web", "u1")
		for _, text := range []string{`{"version":2,"pod":[1],"instances":"many","s":"s1"}`, `{"version":3,"s":["s1"],"pod":{"metadata":{"name":"web","uid":"u1"}}}`} {
			s.disk.corrupt("u1", []byte(text))
			s.want("list", s.list(s.store), "web: u1") // as it was
			s.want("list of another", s.list(s.other), "")
			for _, store := range []*Store{s.store, s.other} {
				if err := store.Withheld("u1"); !errors.Is(err, ErrLater) {
					t.Errorf("not withheld: %v", err)
				}
				if !store.MayName("s1") || store.MayName("s2") {
					t.Error("which sandboxes it may name is not known")
				}
			}
			if err := s.store.Create(manifest("web", "u1"), "serve"); !errors.Is(err, ErrLater) {
				t.Errorf("created: %v", err)
			}
			if err := s.store.Update("u1", evict("x")); !errors.Is(err, ErrLater) {
				t.Errorf("updated: %v", err)
			}
			if got, _, err := s.disk.Read("u1"); err != nil || string(got) != text {
				t.Errorf("now it is %q, %v", got, err)
			}
		}
		if !strings.Contains(s.log.String(), "not managed") {
			t.Error(s.log)
		}
	})
}

// TestDiskThatCannotBeRead: one unreadable file does not hide other pods. The earlier content of
// its checkpoint stays known, but nothing may be done to its pod while the file itself may not be
// at fault.
func TestDiskThatCannotBeRead(t *testing.T) {
	t.Parallel()
	onBothDisks(t, func(s suite) {
		s.create("web", "u1")
		s.disk.failRead = unix.EIO
		fresh := NewStoreOn(s.disk, slog.New(slog.DiscardHandler))
		s.want("bad sector", s.list(fresh), "")
		s.must(fresh.Withheld("u1"))
		s.must(s.other.Update("u1", evict("x")))
		s.want("of a pod that was known", s.list(s.store), "web: u1")
		for range 2 {
			_, err := s.store.Of(web)
			for _, err := range []error{err, s.store.Withheld("u1"), s.store.Update("u1", evict("y")), s.store.Create(manifest("web", "u1"), "serve")} {
				if !errors.Is(err, unix.EIO) {
					t.Errorf("of a pod that was known: %v", err)
				}
			}
			s.create("db", "u2")
		}
		for _, now := range []error{unix.EMFILE, unix.ESTALE, unix.ETIMEDOUT, unix.EACCES} {
			s.disk.failRead = fmt.Errorf("open: %w", now)
			fresh = NewStoreOn(s.disk, slog.New(slog.DiscardHandler))
			s.want("for now", s.list(fresh), "")
			if err := fresh.Withheld("u1"); !errors.Is(err, now) {
				t.Errorf("%v: %v", now, err)
			}
			if err := fresh.Create(manifest("web", "u1"), "serve"); !errors.Is(err, now) {
				t.Errorf("%v: created: %v", now, err)
			}
		}
		s.disk.failRead = nil
		for _, store := range []*Store{fresh, s.store} {
			s.want("well again", s.list(store), "db: u2, web: u1")
			s.must(store.Withheld("u1"))
		}
	})
}

func TestDiskFull(t *testing.T) {
	t.Parallel()
	onBothDisks(t, func(s suite) {
		s.create("web", "u1")
		s.disk.failWrite = unix.ENOSPC
		if err := s.store.Update("u1", evict("x")); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("got %v", err)
		}
		if err := s.store.Create(manifest("web", "u2"), "serve"); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("got %v", err)
		}
		for _, store := range []*Store{s.store, s.other} {
			c, err := store.Get("u1")
			s.must(err)
			s.want("evicted", c.Evicted, "")
			s.want("of", s.of(store, web), "u1")
		}
		s.disk.failWrite = nil
		s.must(s.store.Update("u1", evict("x")))
		c, err := s.other.Get("u1")
		s.must(err)
		s.want("evicted", c.Evicted, "x")
	})
}

func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	onBothDisks(t, func(s suite) {
		s.create("web", "u1")
		s.want("of", s.of(s.other, web), "u1")
		for i := range 50 { // as fast as it goes: times and inodes come again
			why := fmt.Sprint("reason ", i%10)
			s.must(s.other.Update("u1", evict(why)))
			c, err := s.store.Get("u1")
			s.must(err)
			s.want("after another wrote it", c.Evicted, why)
			s.must(s.store.Update("u1", func(c *Checkpoint) { s.want("in the update", c.Evicted, why); c.Owner = why }))
		}
		s.must(s.other.Remove(t.Context(), "u1"))
		s.want("of, removed by another", s.of(s.store, web), "")
		if err := s.store.Update("u1", evict("y")); !errors.Is(err, ErrNotFound) {
			t.Errorf("got %v", err)
		}
		s.want("list", s.list(s.other), "")
	})
}

// TestSameContentIsSame: a file that was rewritten with the same content does not count as a
// change.
func TestSameContentIsSame(t *testing.T) {
	t.Parallel()
	onBothDisks(t, func(s suite) {
		s.create("web", "u1")
		before, err := s.store.Get("u1")
		s.must(err)
		data, _, err := s.disk.Read("u1")
		s.must(err)
		s.disk.corrupt("u1", data)
		if after, err := s.store.Get("u1"); err != nil || after != before {
			t.Errorf("%v", err)
		}
	})
}

// TestScanBesideCreate: a revision that is created after the directories were listed is not
// forgotten.
func TestScanBesideCreate(t *testing.T) {
	t.Parallel()
	onBothDisks(t, func(s suite) {
		s.create("web", "u1")
		s.must(s.store.Scan())
		s.disk.listed = func() {
			s.disk.listed = nil
			s.create("web", "u2")
			s.must(s.other.Remove(t.Context(), "u1"))
		}
		s.must(s.store.Scan())
		s.want("of", s.of(s.store, web), "u2")
		s.want("list", s.list(s.store), "web: u2")
	})
}

// TestUpdateBesideRemove: an update that began before a removal does not create the checkpoint
// again.
func TestUpdateBesideRemove(t *testing.T) {
	t.Parallel()
	onBothDisks(t, func(s suite) {
		s.create("web", "u1")
		err := s.store.Update("u1", func(c *Checkpoint) {
			s.must(s.disk.Remove(t.Context(), "u1"))
			c.Evicted = "x"
		})
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("got %v", err)
		}
		s.want("list", s.list(s.store), "")
		s.create("web", "u1")
		s.want("list", s.list(s.store), "web: u1")
	})
}

func TestAllAtOnce(t *testing.T) {
	t.Parallel()
	onBothDisks(t, func(s suite) {
		var all sync.WaitGroup
		for i := range 8 {
			uid, key := pod.UID(fmt.Sprint("u", i)), pod.Key{Namespace: "default", Name: fmt.Sprint("p", i)}
			all.Go(func() {
				for n := range 20 {
					err := errors.Join(s.store.Create(manifest(key.Name, uid), "serve"), s.store.Update(uid, evict(fmt.Sprint(n))))
					if got, e := s.store.Of(key); len(got) != 1 || errors.Join(err, e) != nil {
						t.Errorf("%s: %+v, %v, %v", uid, got, err, e)
					}
					if err := s.store.Remove(t.Context(), uid); err != nil {
						t.Error(err)
					}
				}
			})
			all.Go(func() {
				for range 20 {
					if _, err := s.other.List(); err != nil {
						t.Error(err)
					}
					if err := s.store.Scan(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		s.want("list", s.list(s.store), "")
	})
}
