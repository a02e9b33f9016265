package sandbox

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
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

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/trace"
	"podrun.io/podrun/internal/sys"
)

// fileNetwork is a network of addresses only: a file per address, as the next process sees it too.
type fileNetwork struct {
	dir  string
	fail error
	// teardown is called first by Teardown, if any.
	teardown func(ctx context.Context, id string) error
}

func (n fileNetwork) Setup(_ context.Context, id, netns string, p *v1.Pod) ([]netip.Addr, error) {
	if p.Spec.HostNetwork && netns == "" {
		return nil, nil
	}
	if !pinned(netns) {
		return nil, fmt.Errorf("%s is not a namespace", netns)
	}
	n.take(id)
	return []netip.Addr{netip.MustParseAddr("10.1.2.3")}, n.fail
}

// take gives id an address.
func (n fileNetwork) take(id string) {
	if err := os.WriteFile(filepath.Join(n.dir, id), nil, 0o600); err != nil {
		panic(err)
	}
}

func (n fileNetwork) Yield(context.Context, string) error { return nil }

func (n fileNetwork) Teardown(ctx context.Context, id string) error {
	if n.teardown != nil {
		if err := n.teardown(ctx, id); err != nil {
			return err
		}
	}
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

func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}

// prepare returns a new sandbox of the pod as its checkpoint has it before it is made.
func prepare(t testing.TB, s *Store, p *v1.Pod) pod.Sandbox {
	t.Helper()
	details, err := s.Prepare(p)
	if err != nil {
		t.Fatal(err)
	}
	return pod.Sandbox{ID: newID(), UID: p.UID, Details: details}
}

func create(t testing.TB, s *Store, p *v1.Pod) pod.Sandbox {
	t.Helper()
	made, err := s.Create(t.Context(), p, prepare(t, s, p))
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func remove(t testing.TB, s *Store, b pod.Sandbox) {
	t.Helper()
	if err := s.Remove(context.Background(), b); err != nil {
		t.Fatal(err)
	}
}

// bare checks that nothing is left of any sandbox in run.
func bare(t testing.TB, run string, n fileNetwork) {
	t.Helper()
	if _, err := os.Lstat(layout.Dirs{Run: run}.SandboxFiles().Dir()); !errors.Is(err, os.ErrNotExist) {
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

func TestCreateReadyRemove(t *testing.T) {
	needRoot(t)
	run := t.TempDir()
	s, n := newStore(t, run)
	p := testPod("web-" + strings.Repeat("x", 70))
	b := prepare(t, s, p)
	if s.Ready(b) {
		t.Fatal("ready before it was made")
	}
	if _, err := os.Lstat(s.dir.root); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("Prepare made something: %v", err)
	}
	made, err := s.Create(t.Context(), p, b)
	if err != nil {
		t.Fatal(err)
	}
	boot, err := sys.BootID()
	if err != nil {
		t.Fatal(err)
	}
	want := b
	want.Boot, want.Ready, want.IPs, want.Details.Complete = boot, true, []string{"10.1.2.3"}, true
	if diff := cmp.Diff(want, made); diff != "" {
		t.Fatal(diff)
	}
	if _, err := s.Create(t.Context(), p, b); err == nil {
		t.Fatal("the same ID was used twice")
	}
	other, _ := newStore(t, run) // as another process sees it
	dir := filepath.Join(run, "sandboxes", made.ID)
	for _, store := range []*Store{s, other} {
		if !store.Ready(made) {
			t.Error("not ready")
		}
		wantPaths := Paths{Net: dir + "/net", IPC: dir + "/ipc", UTS: dir + "/uts"}
		if diff := cmp.Diff(wantPaths, store.Paths(made)); diff != "" {
			t.Error(diff)
		}
	}
	checkNamespaces(t, dir, pod.Hostname(p))
	remove(t, other, made)
	bare(t, run, n)
	if s.Ready(made) {
		t.Error("ready though it was removed")
	}
	remove(t, s, made) // what is gone
	bare(t, run, n)
}

// TestPrepare: the details depend on the pod and on podrun's flags.
func TestPrepare(t *testing.T) {
	t.Parallel()
	s := New(Options{Dirs: layout.Dirs{Run: "/r"}, CgroupDriver: oci.Systemd, ClusterDomain: "cluster.local"})
	p := testPod("web")
	p.Spec.HostUsers, p.Spec.ShareProcessNamespace = new(false), new(true)
	p.Spec.Containers = make([]v1.Container, 2)
	got, err := s.Prepare(p)
	want := pod.SandboxDetails{Shm: true, Systemd: true, PauseParent: oci.Systemd.OfPod(p)}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v: %s", err, diff)
	}
	b := pod.Sandbox{ID: "x", Details: want}
	b.Details.FirstUser = 1 << 20
	wantPaths := Paths{
		Net: "/r/sandboxes/x/net", IPC: "/r/sandboxes/x/ipc", UTS: "/r/sandboxes/x/uts", PID: "/r/sandboxes/x/pid",
		Shm: "/r/sandboxes/x/shm", User: "/r/sandboxes/x/user", FirstUser: 1 << 20, CgroupDriver: oci.Systemd,
	}
	if diff := cmp.Diff(wantPaths, s.Paths(b)); diff != "" {
		t.Error(diff)
	}
	p = testPod("web")
	p.Spec.HostNetwork, p.Spec.HostIPC, p.Spec.Containers = true, true, make([]v1.Container, 2)
	got, err = s.Prepare(p)
	want = pod.SandboxDetails{HostNetwork: true, HostIPC: true, Systemd: true}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v: %s", err, diff)
	}
	wantPaths = Paths{Shm: "/dev/shm", CgroupDriver: oci.Systemd}
	if diff := cmp.Diff(wantPaths, s.Paths(pod.Sandbox{ID: "x", Details: got})); diff != "" {
		t.Error(diff)
	}
	p = testPod(strings.Repeat("x", 40))
	p.Spec.Subdomain, p.Spec.SetHostnameAsFQDN = strings.Repeat("y", 20), new(true)
	if got, err := s.Prepare(p); err == nil {
		t.Errorf("%+v for a pod whose name is too long", got)
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
	if err := sys.OnOwnThread(func() error {
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
	made := create(t, s, p)
	paths := s.Paths(made)
	if !s.Ready(made) || paths.Net != "" || paths.UTS != "" || !pinned(paths.IPC) || len(made.IPs) != 0 {
		t.Fatalf("%+v, %+v", made, paths)
	}
	remove(t, s, made)
	bare(t, run, n)
}

// TestCreateFails: what a failed Create leaves is not ready, and Remove removes it.
func TestCreateFails(t *testing.T) {
	needRoot(t)
	run := t.TempDir()
	s, n := newStore(t, run)
	n.fail = errors.New("no bridge today")
	s.network = n
	p := testPod("web")
	b := prepare(t, s, p)
	var traced error
	created := trace.With(t.Context(), trace.Trace{Connected: func(err error) { traced = err }})
	if _, err := s.Create(created, p, b); !errors.Is(err, n.fail) || !errors.Is(traced, n.fail) {
		t.Fatalf("error %v, traced %v", err, traced)
	}
	if s.Ready(b) {
		t.Error("ready")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	remove(t, s, b)
	bare(t, run, n)
	if _, err := s.Create(ctx, p, prepare(t, s, p)); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	bare(t, run, n)
}

// TestForeignThings: what is not podrun's is neither unmounted nor removed.
func TestForeignThings(t *testing.T) {
	needRoot(t)
	s, n := newStore(t, t.TempDir())
	made := create(t, s, testPod("web"))
	foreign := filepath.Join(s.dir.path(made.ID), "foreign")
	if err := os.WriteFile(foreign, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), made); err == nil {
		t.Fatal("removed a directory with a foreign file in it")
	}
	if b, err := os.ReadFile(foreign); err != nil || string(b) != "mine" {
		t.Fatalf("%q, %v", b, err)
	}
	if s.Ready(made) {
		t.Error("ready though its namespaces were removed")
	}
	if err := os.Remove(foreign); err != nil {
		t.Fatal(err)
	}
	remove(t, s, made)
	bare(t, filepath.Dir(s.dir.root), n)
	for _, id := range []string{"", "..", "../x", "abc"} {
		if err := s.Remove(t.Context(), pod.Sandbox{ID: id}); err == nil {
			t.Errorf("removed %q", id)
		}
		if _, err := s.Create(t.Context(), testPod("web"), pod.Sandbox{ID: id}); err == nil {
			t.Errorf("created %q", id)
		}
	}
}

// TestManyAtOnce: two stores, as in two processes, create and remove sandboxes concurrently,
// including the same ones, while both sweep.
func TestManyAtOnce(t *testing.T) {
	needRoot(t)
	run := t.TempDir()
	a, n := newStore(t, run)
	b, _ := newStore(t, run)
	var saved sync.Map // as the checkpoints
	known := func(id string) bool { _, ok := saved.Load(id); return ok }
	var wg sync.WaitGroup
	for i := range 20 {
		for _, s := range []*Store{a, b} {
			wg.Go(func() {
				p := testPod(fmt.Sprintf("web-%d", i))
				for range 3 {
					sandbox := prepare(t, s, p)
					saved.Store(sandbox.ID, nil)
					made, err := s.Create(t.Context(), p, sandbox)
					if err != nil || !s.Ready(made) {
						t.Errorf("%+v, %v", made, err)
					}
					if err := s.Sweep(t.Context(), known); err != nil {
						t.Error(err)
					}
					if !s.Ready(made) {
						t.Error("a sandbox that is known was swept")
					}
					var both sync.WaitGroup
					for _, s := range []*Store{a, b} {
						both.Go(func() {
							if err := s.Remove(t.Context(), made); err != nil {
								t.Error(err)
							}
						})
					}
					both.Wait()
					saved.Delete(sandbox.ID)
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
		remove(b, s, create(b, s, testPod("web")))
	}
}

func BenchmarkReady(b *testing.B) {
	needRoot(b)
	s, _ := newStore(b, b.TempDir())
	made := create(b, s, testPod("web"))
	defer remove(b, s, made)
	for b.Loop() {
		if !s.Ready(made) {
			b.Fatal("not ready")
		}
	}
}
