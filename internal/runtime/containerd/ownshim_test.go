package containerd_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/containerd/daemontest"
	shims "podrun.io/podrun/internal/shim"
)

func named(name string) func(*v1.Pod) { return func(p *v1.Pod) { p.Name = name } }

// TestOwnShims checks that podrun starts shims like the first one, which containerd started, and
// that they work like it: all containers of a sandbox share one, including those that a later
// podrun starts, and it exits with the last of them.
func TestOwnShims(t *testing.T) {
	for name, start := range map[string]func(testing.TB) daemontest.Daemon{"embedded": daemontest.Embedded, "stock": daemontest.Stock} {
		t.Run(name, func(t *testing.T) {
			first := newRig(t, start(t), "sleep 1000")
			model := parent(t, first.run(t).PID)
			r := rigOn(t, first.daemon, first.Runtime, "sleep 1000", named("api-node"))
			c := r.run(t)
			shim := parent(t, c.PID)
			if parent(t, shim) != os.Getpid() {
				t.Fatalf("shim %d is a child of %d", shim, parent(t, shim))
			}
			for _, file := range []string{"cmdline", "environ", "cgroup", "oom_score_adj", "exe"} {
				if a, b := ofProcess(t, model, file), ofProcess(t, shim, file); strings.ReplaceAll(b, c.ID, firstID(t, first)) != a {
					t.Errorf("%s: %q, not %q", file, b, a)
				}
			}
			if other := parent(t, r.run(t).PID); other != shim {
				t.Errorf("shims %d and %d", shim, other)
			}
			later := rig{Runtime: dialOnly(t, r.daemon), daemon: r.daemon, key: r.key, start: r.start}
			defer later.Close()
			if other := parent(t, later.run(t).PID); other != shim {
				t.Errorf("shims %d and %d", shim, other)
			}
			clear(t, r.Runtime)
			daemontest.Eventually(t, "the shim ends and is buried", func() bool {
				if _, err := r.List(t.Context()); err != nil {
					t.Fatal(err)
				}
				return errors.Is(syscall.Kill(shim, 0), syscall.ESRCH)
			})
			if left, _ := filepath.Glob(filepath.Join(r.daemon.Dirs.SandboxFiles().Shims(), "*")); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func firstID(t *testing.T, r rig) string {
	t.Helper()
	return find(t, r.Runtime, r.key, "main", 0).ID
}

func ofProcess(t *testing.T, pid int, name string) string {
	t.Helper()
	path := filepath.Join("/proc", strconv.Itoa(pid), name)
	if target, err := os.Readlink(path); err == nil {
		return target
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestOwnShimIsKilled kills a shim that podrun started: the effect is that of killing one of
// containerd's, and the next start starts another shim.
func TestOwnShimIsKilled(t *testing.T) {
	first := newRig(t, daemontest.Embedded(t), "sleep 1000")
	var reasons []string
	for _, r := range []rig{first, rigOn(t, first.daemon, first.Runtime, "sleep 1000", named("api-node"))} {
		c := r.run(t)
		shim := parent(t, c.PID)
		if err := syscall.Kill(shim, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		reasons = append(reasons, r.ended(t, 0).Reason)
		daemontest.Eventually(t, "the container has ended", func() bool { return errors.Is(syscall.Kill(c.PID, 0), syscall.ESRCH) })
		if c := r.run(t); c.State != pod.Running || parent(t, c.PID) == shim {
			t.Errorf("%+v", c)
		}
	}
	if reasons[0] != reasons[1] {
		t.Errorf("ended with %q", reasons)
	}
}

// TestSharedShimThatFails checks that a shim that accepts connections but serves no requests, for
// example because it is just exiting, is not used, and that the container has all its files.
func TestSharedShimThatFails(t *testing.T) {
	first := newRig(t, daemontest.Embedded(t), "sleep 1000")
	first.run(t)
	r := rigOn(t, first.daemon, first.Runtime, "[ -e /dev/termination-log ] && sleep 1000", withFiles, named("api-node"))
	c := r.run(t)
	shim := parent(t, c.PID)
	socket := shims.SocketOf(r.Dirs.SandboxFiles().Shim(r.start.Sandbox.ID))
	if socket == "" {
		t.Fatal("its shim has no socket")
	}
	if err := syscall.Kill(shim, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.ended(t, 0)
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer l.Close()
		for range 2 { // podrun looks whether it answers, and containerd asks it
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	if c := r.run(t); c.State != pod.Running {
		t.Errorf("%+v", c)
	}
}

// TestModelIsOfThisContainerd checks that podrun reads anew how shims are started after another
// containerd has taken the place of the first one, also if podrun does not receive its events.
func TestModelIsOfThisContainerd(t *testing.T) {
	first := newRig(t, daemontest.Embedded(t), "sleep 1000")
	first.run(t)
	ours := func(name string) bool {
		r := rigOn(t, first.daemon, first.Runtime, "sleep 1000", named(name))
		return parent(t, parent(t, r.run(t).PID)) == os.Getpid()
	}
	if !ours("api-node") {
		t.Error("no model was learnt")
	}
	fall(t, first.daemon)
	rise(t, first)
	daemontest.Eventually(t, "the daemon answers", func() bool { _, err := first.List(t.Context()); return err == nil })
	if ours("db-node") {
		t.Error("the model is of the containerd before")
	}
	if !ours("web2-node") {
		t.Error("no model was learnt anew")
	}
}

// TestOwnShimAfterAFailure checks that a missing program leaves no shim, and that the next start
// has one.
func TestOwnShimAfterAFailure(t *testing.T) {
	first := newRig(t, daemontest.Embedded(t), "sleep 1000")
	first.run(t)
	r := rigOn(t, first.daemon, first.Runtime, "", named("api-node"))
	r.start.Container.Command = []string{"/none"}
	if err := r.StartContainer(t.Context(), r.start); err == nil {
		t.Fatal("a program that is missing was started")
	}
	r.start.Container.Command = []string{"sleep", "1000"}
	r.start.Attempt++
	if c := r.run(t); c.State != pod.Running || parent(t, parent(t, c.PID)) != os.Getpid() {
		t.Errorf("%+v", c)
	}
}
