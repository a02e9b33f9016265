package sandbox

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
)

func TestNotReady(t *testing.T) {
	needRoot(t)
	unmount := func(t *testing.T, path string) {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
	}
	for name, harm := range map[string]func(t *testing.T, s *Store, b *pod.Sandbox){
		"pin lost": func(t *testing.T, s *Store, b *pod.Sandbox) { unmount(t, s.dir.file(b.ID, pinUTS)) },
		"shared memory lost": func(t *testing.T, s *Store, b *pod.Sandbox) {
			unmount(t, s.dir.file(b.ID, shmName))
		},
		"pause process killed": func(t *testing.T, _ *Store, b *pod.Sandbox) {
			if err := unix.Kill(b.Details.PausePID, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if _, err := syscall.Wait4(b.Details.PausePID, nil, 0, nil); err != nil {
				t.Fatal(err)
			}
		},
		"directory unmounted": func(t *testing.T, s *Store, b *pod.Sandbox) {
			for _, name := range []string{pinNet, pinIPC, pinUTS, pinPID, shmName} {
				unmount(t, s.dir.file(b.ID, name))
			}
			unmount(t, s.dir.root)
		},
		"not complete":    func(_ *testing.T, _ *Store, b *pod.Sandbox) { b.Details.Complete = false },
		"of another boot": func(_ *testing.T, _ *Store, b *pod.Sandbox) { b.Boot = "another" },
		"pinned twice, and its PID used again": func(t *testing.T, s *Store, b *pod.Sandbox) {
			pin := s.dir.file(b.ID, pinIPC)
			if err := unix.Mount(pin, pin, "", unix.MS_BIND, ""); err != nil {
				t.Fatal(err)
			}
			b.Details.PauseStart++
		},
	} {
		t.Run(name, func(t *testing.T) {
			run := t.TempDir()
			s, n := newStore(t, run)
			p := sharingPod(run)
			t.Cleanup(func() { endCgroup(t, p) })
			made := create(t, s, p)
			if !s.Ready(made) {
				t.Fatal("not ready")
			}
			harm(t, s, &made)
			if s.Ready(made) {
				t.Error("ready")
			}
			next := create(t, s, p) // the next attempt, beside it
			remove(t, s, made)
			if !s.Ready(next) {
				t.Error("the next one is not ready")
			}
			remove(t, s, next)
			bare(t, run, n)
		})
	}
}

const cutEnv = "PODRUN_TEST_CUT"

// cutPods are pods that together have all that a sandbox can have.
var cutPods = map[string]func(run string) *v1.Pod{
	"sharing": sharingPod,
	"own users": func(run string) *v1.Pod {
		p := sharingPod(run)
		p.Spec.ShareProcessNamespace, p.Spec.HostUsers = nil, new(false)
		return p
	},
}

// TestCutChild is the process that TestCutAnywhere kills: it creates, then removes, a sandbox, and
// dies after its nth step.
func TestCutChild(t *testing.T) {
	spec, ok := os.LookupEnv(cutEnv)
	if !ok {
		t.Skip("run by TestCutAnywhere")
	}
	args := strings.Split(spec, ",")
	run, id, kind := args[0], args[2], args[3]
	left, err := strconv.Atoi(args[1])
	if err != nil {
		t.Fatal(err)
	}
	s, _ := newStore(t, run)
	s.dir.step = func(name string) {
		if left--; left == 0 {
			fmt.Println("cut after", name)
			if err := unix.Kill(unix.Getpid(), unix.SIGKILL); err != nil {
				panic(err)
			}
			select {}
		}
	}
	p := cutPods[kind](run)
	b := prepare(t, s, p)
	b.ID = id
	made, err := s.Create(t.Context(), p, b)
	if err != nil {
		t.Fatal(err)
	}
	remove(t, s, made)
}

// sharingPod is one whose containers share all that they can. Its UID is its directory's, because cgroups
// are the machine's.
func sharingPod(run string) *v1.Pod {
	p := testPod("web")
	p.UID = pod.UID("test-" + strings.ReplaceAll(strings.Trim(run, "/"), "/", "-"))
	p.Spec.ShareProcessNamespace = new(true)
	p.Spec.Containers = make([]v1.Container, 2)
	return p
}

// endCgroup checks that the pod's first process and its cgroup are gone, and removes what the test made.
func endCgroup(t *testing.T, p *v1.Pod) {
	t.Helper()
	for _, pattern := range []string{"/sys/fs/cgroup/*", "/sys/fs/cgroup"} {
		left, err := filepath.Glob(pattern + oci.Cgroupfs.OfPod(p) + "/*/cgroup.procs")
		if err != nil || len(left) > 0 {
			t.Errorf("left of the first process: %v, %v", left, err)
		}
	}
	tree, err := cgroup.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.Remove(oci.Cgroupfs.OfPod(p)); err != nil {
		t.Error(err)
	}
}

// TestCutAnywhere: after a kill -9 at any step, Remove removes what is left, with no more
// information than was known before anything was created; Sweep does so without even that.
func TestCutAnywhere(t *testing.T) {
	needRoot(t)
	for name, clean := range map[string]func(s *Store, b pod.Sandbox) error{
		"remove": func(s *Store, b pod.Sandbox) error { return s.Remove(t.Context(), b) },
		"sweep": func(s *Store, _ pod.Sandbox) error {
			return s.Sweep(t.Context(), func(string) bool { return false })
		},
	} {
		for kind, least := range map[string]int{"sharing": 28, "own users": 24} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				steps := map[string]bool{}
				for n := 1; cut(t, n, kind, clean, steps); n++ {
				}
				t.Logf("cut at %d steps", len(steps))
				if len(steps) < least {
					t.Fatalf("only %d steps were cut: %q", len(steps), slices.Sorted(maps.Keys(steps)))
				}
			})
		}
	}
}

// cut cuts a process short after n steps and cleans up what it left; false when it had fewer.
func cut(t *testing.T, n int, kind string, clean func(*Store, pod.Sandbox) error, steps map[string]bool) bool {
	t.Helper()
	run := t.TempDir()
	p := cutPods[kind](run)
	s, net := newStore(t, run)
	b := prepare(t, s, p)
	out, killed := cutAfter(t, fmt.Sprintf("%s=%s,%d,%s,%s", cutEnv, run, n, b.ID, kind))
	if killed {
		steps[out] = true
		if s.Ready(b) {
			t.Errorf("%s: ready", out)
		}
		if err := clean(s, b); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
	}
	bare(t, run, net)
	if p.Spec.ShareProcessNamespace != nil {
		endCgroup(t, p)
	}
	if t.Failed() {
		t.Fatal(out)
	}
	return killed
}

// cutAfter runs TestCutChild; it is not killed when it has fewer than n steps.
func cutAfter(t *testing.T, env string) (out string, killed bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestCutChild$")
	cmd.Env = append(os.Environ(), env)
	text, err := cmd.CombinedOutput()
	if err == nil {
		return string(text), false
	}
	if cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("%v: %s", err, text)
	}
	return strings.TrimSpace(string(text)), true
}
