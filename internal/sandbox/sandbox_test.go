package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
)

// fileNetwork is a network of addresses only: a file per address, as the next process sees it too.
type fileNetwork struct {
	dir  string
	fail error
}

func (n fileNetwork) Setup(_ context.Context, id, netns string, p *v1.Pod) ([]netip.Addr, error) {
	if p.Spec.HostNetwork && netns == "" {
		return nil, nil
	}
	if !pinned(netns) {
		return nil, fmt.Errorf("%s is not a namespace", netns)
	}
	if err := os.WriteFile(filepath.Join(n.dir, id), nil, 0o600); err != nil {
		return nil, err
	}
	return []netip.Addr{netip.MustParseAddr("10.1.2.3")}, n.fail
}

func (n fileNetwork) Teardown(_ context.Context, id string) error {
	return removeFile(filepath.Join(n.dir, id))
}

func (n fileNetwork) Holders() ([]string, error) { return names(n.dir) }

func needRoot(t testing.TB) {
	if os.Getuid() != 0 {
		t.Skip("needs root, for namespaces and mounts")
	}
}

func newStore(t testing.TB, run string) (*Store, fileNetwork) {
	t.Helper()
	n := fileNetwork{dir: filepath.Join(run, "addresses")}
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return New(Options{Dirs: layout.Dirs{Run: run}, Network: n, Log: slog.New(slog.DiscardHandler)}), n
}

func testPod(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}}
}

// bare checks that nothing is left of any sandbox in run.
func bare(t testing.TB, run string, n fileNetwork) {
	t.Helper()
	if _, err := os.Lstat(layout.Dirs{Run: run}.Sandboxes()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of the sandboxes is still there: %v", err)
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(run))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		t.Errorf("still mounted: %s", m.Mountpoint)
	}
	if left, _ := names(n.dir); len(left) > 0 {
		t.Errorf("addresses still taken: %v", left)
	}
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

func TestCreateListRemove(t *testing.T) {
	needRoot(t)
	run := t.TempDir()
	s, n := newStore(t, run)
	p := testPod("web-" + strings.Repeat("x", 70))
	made, err := s.Create(t.Context(), p, 2, "serve")
	if err != nil {
		t.Fatal(err)
	}
	if made.ID != ID(pod.KeyOf(p), p.UID, 2) || len(made.ID) != 32 || !made.Ready {
		t.Fatalf("made %+v", made)
	}
	again, err := s.Create(t.Context(), p, 2, "serve")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(made, again); diff != "" {
		t.Fatalf("the same attempt made another sandbox: %s", diff)
	}
	other, _ := newStore(t, run) // as another process sees it
	for _, store := range []*Store{s, s, other} {
		list, err := store.List()
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(run, "sandboxes", made.ID)
		want := []Record{{
			Sandbox: made, Key: pod.KeyOf(p), Owner: "serve",
			Net: dir + "/net", IPC: dir + "/ipc", UTS: dir + "/uts",
		}}
		if diff := cmp.Diff(want, list); diff != "" {
			t.Fatal(diff)
		}
	}
	checkNamespaces(t, filepath.Join(run, "sandboxes", made.ID), pod.Hostname(p))
	if err := other.Remove(t.Context(), made.ID); err != nil {
		t.Fatal(err)
	}
	bare(t, run, n)
	if err := s.Remove(t.Context(), made.ID); err != nil {
		t.Fatalf("removing what is gone: %v", err)
	}
	if list, err := s.List(); err != nil || len(list) != 0 {
		t.Fatalf("%v, %v", list, err)
	}
}

// checkNamespaces checks that the pins are namespaces of their own and that this process left them.
func checkNamespaces(t *testing.T, dir, hostname string) {
	t.Helper()
	for _, name := range allPins {
		if inode(t, filepath.Join(dir, name)) == inode(t, "/proc/self/ns/"+name) {
			t.Errorf("%s is the process's own", name)
		}
		if inode(t, "/proc/self/ns/"+name) != inode(t, fmt.Sprintf("/proc/%d/ns/%s", os.Getppid(), name)) {
			t.Errorf("the process has changed its own %s namespace", name)
		}
	}
	var got string
	if err := onThrowawayThread(func() error {
		f, err := os.Open(filepath.Join(dir, pinUTS))
		if err != nil {
			return err
		}
		defer f.Close()
		if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWUTS); err != nil {
			return err
		}
		got, err = os.Hostname()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if got != hostname {
		t.Errorf("hostname %q, want %q", got, hostname)
	}
}

func TestHostNetwork(t *testing.T) {
	needRoot(t)
	run := t.TempDir()
	s, n := newStore(t, run)
	p := testPod("web")
	p.Spec.HostNetwork = true
	made, err := s.Create(t.Context(), p, 0, "once")
	if err != nil {
		t.Fatal(err)
	}
	list, err := s.List()
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	r := list[0]
	if !r.Ready || r.Net != "" || r.UTS != "" || !pinned(r.IPC) || len(r.IPs) != 0 {
		t.Fatalf("%+v", r)
	}
	if err := s.Remove(t.Context(), made.ID); err != nil {
		t.Fatal(err)
	}
	bare(t, run, n)
}

func TestNetworkFailureLeavesNothing(t *testing.T) {
	needRoot(t)
	run := t.TempDir()
	s, n := newStore(t, run)
	n.fail = errors.New("no bridge today")
	s.network = n
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if _, err := s.Create(ctx, testPod("web"), 0, ""); !errors.Is(err, n.fail) {
		t.Fatalf("error %v", err)
	}
	bare(t, run, n)
	cancel()
	if _, err := s.Create(ctx, testPod("web"), 0, ""); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	bare(t, run, n)
}

// TestForeignThings: what is not ours is neither unmounted nor removed.
func TestForeignThings(t *testing.T) {
	needRoot(t)
	s, n := newStore(t, t.TempDir())
	p := testPod("web")
	made, err := s.Create(t.Context(), p, 0, "")
	if err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(s.path(made.ID), "foreign")
	if err := os.WriteFile(foreign, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), made.ID); err == nil {
		t.Fatal("removed a directory with a foreign file in it")
	}
	if b, err := os.ReadFile(foreign); err != nil || string(b) != "mine" {
		t.Fatalf("%q, %v", b, err)
	}
	checkHalfMade(t, s, p)
	if err := os.Remove(foreign); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), made.ID); err != nil {
		t.Fatal(err)
	}
	bare(t, filepath.Dir(s.dir), n)
	for _, id := range []string{"", "..", "../x", "abc"} {
		if err := s.Remove(t.Context(), id); err == nil {
			t.Errorf("removed %q", id)
		}
	}
}

// TestManyAtOnce: two stores, as two processes have them, make and remove the same and other sandboxes
// at the same time.
func TestManyAtOnce(t *testing.T) {
	needRoot(t)
	run := t.TempDir()
	a, n := newStore(t, run)
	b, _ := newStore(t, run)
	var wg sync.WaitGroup
	for i := range 20 {
		for _, s := range []*Store{a, b} {
			wg.Go(func() {
				p := testPod(fmt.Sprintf("web-%d", i))
				for range 3 {
					made, err := s.Create(t.Context(), p, 0, "")
					if err != nil || !made.Ready {
						t.Errorf("%+v, %v", made, err)
					}
					if _, err := s.List(); err != nil {
						t.Error(err)
					}
					if err := s.Remove(t.Context(), made.ID); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	bare(t, run, n)
}

func BenchmarkCreateRemove(b *testing.B) {
	needRoot(b)
	s, _ := newStore(b, b.TempDir())
	for b.Loop() {
		made, err := s.Create(b.Context(), testPod("web"), 0, "")
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Remove(b.Context(), made.ID); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkList50(b *testing.B) {
	needRoot(b)
	s, _ := newStore(b, b.TempDir())
	for i := range 50 {
		made, err := s.Create(b.Context(), testPod(strconv.Itoa(i)), 0, "")
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := s.Remove(context.Background(), made.ID); err != nil {
				b.Error(err)
			}
		})
	}
	for b.Loop() {
		list, err := s.List()
		if err != nil || len(list) != 50 || !list[0].Ready {
			b.Fatal(len(list), err)
		}
	}
}

// TestSweep: the directory of the sandboxes is lost, and what the network holds for them is not held for ever.
func TestSweep(t *testing.T) {
	needRoot(t)
	run := t.TempDir()
	s, n := newStore(t, run)
	kept := &v1.Pod{}
	kept.Namespace, kept.Name, kept.UID = "default", "kept", "u1"
	sb, err := s.Create(t.Context(), kept, 0, "serve")
	if err != nil {
		t.Fatal(err)
	}
	lost := ID(pod.Key{Namespace: "default", Name: "lost"}, "u2", 0)
	if err := os.WriteFile(filepath.Join(n.dir, lost), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if held, err := n.Holders(); err != nil || len(held) != 1 || held[0] != sb.ID {
		t.Errorf("held %v, %v", held, err)
	}
	if err := s.Remove(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.dir, lost), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if held, err := n.Holders(); err != nil || len(held) != 0 {
		t.Errorf("held %v, %v", held, err)
	}
	if _, err := os.Lstat(s.dir); !os.IsNotExist(err) {
		t.Errorf("the directory of the sandboxes: %v", err)
	}
}

// TestOf: one pod's sandboxes are found without a look at all others, those of another process after a list.
func TestOf(t *testing.T) {
	needRoot(t)
	run := t.TempDir()
	s, n := newStore(t, run)
	other, _ := newStore(t, run)
	web, db := testPod("web"), testPod("db")
	of := func(s *Store, p *v1.Pod, want ...pod.Sandbox) {
		t.Helper()
		records, err := s.Of(pod.KeyOf(p))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range records {
			got = append(got, r.ID)
		}
		var ids []string
		for _, sb := range want {
			ids = append(ids, sb.ID)
		}
		slices.Sort(got)
		slices.Sort(ids)
		if !slices.Equal(got, ids) {
			t.Errorf("of %s: %v, want %v", p.Name, got, ids)
		}
	}
	create := func(s *Store, p *v1.Pod, attempt int) pod.Sandbox {
		t.Helper()
		sb, err := s.Create(t.Context(), p, attempt, "")
		if err != nil {
			t.Fatal(err)
		}
		return sb
	}
	list := func() {
		t.Helper()
		if _, err := s.List(); err != nil {
			t.Fatal(err)
		}
	}
	first := create(other, web, 0)
	of(s, web, first) // nothing has been listed yet
	list()
	of(s, web, first)
	of(s, db)
	second, third := create(s, web, 1), create(other, db, 0)
	of(s, web, first, second)
	of(s, db, third) // another podrun made it since the list
	list()
	of(s, db, third)
	// Gone by whatever hand, and back.
	for _, sb := range []pod.Sandbox{second, third} {
		if err := other.Remove(t.Context(), sb.ID); err != nil {
			t.Fatal(err)
		}
	}
	of(s, web, first)
	of(s, db)
	second = create(s, web, 1)
	of(s, web, first, second)
	for _, sb := range []pod.Sandbox{first, second} {
		if err := s.Remove(t.Context(), sb.ID); err != nil {
			t.Fatal(err)
		}
	}
	of(s, web)
	bare(t, run, n)
}
