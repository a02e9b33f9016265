package checkpointed_test

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/checkpointed"
	"podrun.io/podrun/internal/runtime/fake"
)

// machine is an engine in memory with checkpoints on disk, on which podruns are started and
// stopped.
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

// podrun returns a podrun that has just been started.
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

// list returns the keys of the pods in a list, and of those whose state the list does not know.
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

// TestOneBadFile checks that a checkpoint that cannot be opened any more delays its own pod and no
// other one.
func TestOneBadFile(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	r := m.podrun()
	bad, uid := m.start(r, 0)
	good, _ := m.start(r, 1)
	path := m.dirs.Revision(uid).Checkpoint()
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

// write replaces a pod's checkpoint.
func (m *machine) write(uid pod.UID, change func(text string) string) {
	m.Helper()
	path := m.dirs.Revision(uid).Checkpoint()
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, []byte(change(string(text))), 0o600)
	}
	if err != nil {
		m.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestLaterVersion checks that a pod whose checkpoint a later podrun wrote is left alone, both by a
// podrun that has seen the pod before and by a new one.
func TestLaterVersion(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	first := m.podrun()
	key, uid := m.start(first, 0)
	m.write(uid, func(text string) string { return strings.Replace(text, `"version":1`, `"version":2`, 1) })
	for name, r := range map[string]*checkpointed.Runtime{"first": first, "new": m.podrun()} {
		if shown, unknown := m.list(r); len(shown) != 0 || !unknown[key] {
			t.Errorf("%s: shown %v, unknown %v", name, shown, unknown)
		}
		withheld := (*runtime.WithheldError)(nil)
		if o, err := r.Inspect(t.Context(), key); !errors.As(err, &withheld) {
			t.Errorf("%s: %+v, %v", name, o, err)
		}
		if err := r.Sweep(t.Context()); err != nil || len(m.engine.SandboxIDs()) != 1 {
			t.Errorf("%s: swept, %v", name, err)
		}
	}
	// Nor when nothing runs in its sandbox.
	d := m.engine.Driver()
	for _, c := range must(d.ListContainers(t.Context()))[key] {
		if err := errors.Join(d.SignalContainer(t.Context(), c.ID, "SIGKILL"), d.RemoveContainer(t.Context(), c, time.Time{})); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.podrun().Sweep(t.Context()); err != nil || len(m.engine.SandboxIDs()) != 1 {
		t.Errorf("swept without containers, %v", err)
	}
}

// TestContainersBeforeTheirSandbox checks that the sandbox of a pod without a readable checkpoint
// is kept as long as the engine has a container in it, and does not affect other pods.
func TestContainersBeforeTheirSandbox(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(m *machine, uid pod.UID) error{
		"torn":    func(m *machine, uid pod.UID) error { m.write(uid, func(string) string { return "{" }); return nil },
		"missing": func(m *machine, uid pod.UID) error { return os.RemoveAll(m.dirs.Pod(uid)) },
		"directory": func(m *machine, uid pod.UID) error {
			path := m.dirs.Revision(uid).Checkpoint()
			return errors.Join(os.Remove(path), os.MkdirAll(path+"/deep", 0o755))
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			key, uid := m.start(m.podrun(), 0)
			_, dead := m.start(m.podrun(), 1)
			if err := errors.Join(damage(m, uid), os.RemoveAll(m.dirs.Pod(dead))); err != nil {
				t.Fatal(err)
			}
			r := m.podrun()
			end := func(key pod.Key) {
				o, err := r.Inspect(t.Context(), key)
				if err != nil || len(o.Containers) != 1 || !o.Containers[0].Stray {
					t.Fatalf("%+v, %v", o, err)
				}
				id := o.Containers[0].ID
				if err := errors.Join(r.SignalContainer(t.Context(), id, "SIGKILL"), r.ReapContainer(t.Context(), id, ""), r.RemoveContainer(t.Context(), id)); err != nil {
					t.Fatal(err)
				}
			}
			sweep := func(left int) {
				t.Helper()
				if err := r.Sweep(t.Context()); err != nil || len(m.engine.SandboxIDs()) != left {
					t.Errorf("want %d sandboxes, have %v, %v", left, m.engine.SandboxIDs(), err)
				}
			}
			sweep(2)
			end(pod.KeyOf(benchPod(1)))
			sweep(1)
			end(key)
			sweep(0)
			m.start(r, 0)
			sweep(1)
		})
	}
}
