package checkpointed_test

import (
	"errors"
	"log/slog"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/checkpointed"
	"podrun.io/podrun/internal/runtime/fake"
)

// machine is an engine in memory and checkpoints on disk, which podruns come and go on.
type machine struct {
	*testing.T
	engine *fake.Engine
	dirs   layout.Dirs
}

func newMachine(t *testing.T) *machine {
	m := &machine{T: t, engine: fake.NewEngine("boot"), dirs: layout.Dirs{Root: t.TempDir(), Run: t.TempDir(), Log: t.TempDir()}}
	m.engine.AddImage("web:1", fake.Script{})
	return m
}

// podrun is one that has just been started.
func (m *machine) podrun() *checkpointed.Runtime {
	log := slog.New(slog.NewTextHandler(m.Output(), nil))
	return checkpointed.New(checkpointed.Options{
		Driver: m.engine.Driver(), Store: checkpoint.NewStore(m.dirs, log), Boot: m.engine.Boot, Dirs: m.dirs, Log: log,
	})
}

// start runs the n-th pod.
func (m *machine) start(r *checkpointed.Runtime, n int) (pod.Key, pod.UID) {
	m.Helper()
	p := benchPod(n)
	if err := errors.Join(r.SavePod(p, "serve"), r.CreateSandbox(m.Context(), p, 0)); err != nil {
		m.Fatal(err)
	}
	c, err := r.Store().Get(p.UID)
	if err != nil {
		m.Fatal(err)
	}
	start := runtime.Start{Pod: p, Container: &p.Spec.Containers[0], Sandbox: c.Sandboxes[0], Image: pod.Image{Name: "web:1"}}
	if err := r.StartContainer(m.Context(), start); err != nil {
		m.Fatal(err)
	}
	return c.Key(), p.UID
}

// list returns the keys that a list shows, and those of which it shows nothing.
func (m *machine) list(r *checkpointed.Runtime) (shown, unknown map[pod.Key]bool) {
	m.Helper()
	all, err := r.List(m.Context())
	some := (*runtime.UnknownError)(nil)
	if err != nil && !errors.As(err, &some) {
		m.Fatal(err)
	}
	shown, unknown = map[pod.Key]bool{}, map[pod.Key]bool{}
	for _, o := range all {
		shown[o.Key] = true
	}
	if some != nil {
		for _, o := range some.Pods {
			unknown[o.Key] = true
		}
	}
	return shown, unknown
}

// TestOneBadFile: a checkpoint that cannot be opened any more delays its own pod, and no other one.
func TestOneBadFile(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	r := m.podrun()
	bad, uid := m.start(r, 0)
	good, _ := m.start(r, 1)
	path := m.dirs.Checkpoint(uid)
	if err := errors.Join(os.Rename(path, path+".saved"), os.Symlink("/nonexistent/x", path)); err != nil {
		t.Fatal(err)
	}
	shown, unknown := m.list(r)
	if len(shown) != 1 || !shown[good] || len(unknown) != 1 || !unknown[bad] {
		t.Errorf("shown %v, unknown %v", shown, unknown)
	}
	if _, err := r.Inspect(t.Context(), bad); !errors.Is(err, unix.ELOOP) {
		t.Errorf("the bad one: %v", err)
	}
	if o, err := r.Inspect(t.Context(), good); err != nil || len(o.Containers) != 1 {
		t.Errorf("the good one: %+v, %v", o, err)
	}
	m.start(r, 2)
	if all, err := r.Store().List(); err != nil || len(all) != 3 {
		t.Errorf("the addresses of %v, %v", all, err)
	}
	if err := r.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	if err := os.Rename(path+".saved", path); err != nil {
		t.Fatal(err)
	}
	if shown, unknown = m.list(r); len(shown) != 3 || len(unknown) != 0 {
		t.Errorf("mended: shown %v, unknown %v", shown, unknown)
	}
}
