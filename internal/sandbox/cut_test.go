package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/ocispec"
	"podrun.io/podrun/internal/pod"
)

func TestNotReady(t *testing.T) {
	needRoot(t)
	for name, harm := range map[string]func(t *testing.T, dir string){
		"pin lost": func(t *testing.T, dir string) {
			if err := unix.Unmount(filepath.Join(dir, pinUTS), unix.MNT_DETACH); err != nil {
				t.Fatal(err)
			}
		},
		"rebooted, with the run directory kept": func(t *testing.T, dir string) {
			for _, name := range allPins {
				if err := unix.Unmount(filepath.Join(dir, name), unix.MNT_DETACH); err != nil {
					t.Fatal(err)
				}
			}
			if err := unix.Unmount(filepath.Dir(dir), unix.MNT_DETACH); err != nil {
				t.Fatal(err)
			}
		},
		"record torn": func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, recordName), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"pinned twice": func(t *testing.T, dir string) {
			if err := unix.Mount(filepath.Join(dir, pinIPC), filepath.Join(dir, pinIPC), "", unix.MS_BIND, ""); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(filepath.Join(dir, recordName)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			run := t.TempDir()
			s, n := newStore(t, run)
			p := testPod("web")
			made, err := s.Create(t.Context(), p, 0, "")
			if err != nil {
				t.Fatal(err)
			}
			harm(t, s.path(made.ID))
			checkHalfMade(t, s, p)
			mended, err := s.Create(t.Context(), p, 0, "")
			if err != nil || !mended.Ready || mended.ID != made.ID {
				t.Fatalf("%+v, %v", mended, err)
			}
			harm(t, s.path(made.ID))
			if err := s.Remove(t.Context(), made.ID); err != nil {
				t.Fatal(err)
			}
			bare(t, run, n)
		})
	}
}

func checkHalfMade(t *testing.T, s *Store, p *v1.Pod) {
	t.Helper()
	list, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 || list[0].Ready || list[0].Key != pod.KeyOf(p) || list[0].UID != p.UID {
		t.Fatalf("listed %+v", list)
	}
}

func TestOtherBootIsNotReady(t *testing.T) {
	needRoot(t)
	run := t.TempDir()
	s, n := newStore(t, run)
	p := testPod("web")
	made, err := s.Create(t.Context(), p, 0, "")
	if err != nil {
		t.Fatal(err)
	}
	now, err := s.machine()
	if err != nil {
		t.Fatal(err)
	}
	now.boot = "another"
	s.machine = func() (machine, error) { return now, nil }
	checkHalfMade(t, s, p)
	if err := s.Remove(t.Context(), made.ID); err != nil {
		t.Fatal(err)
	}
	bare(t, run, n)
}

const cutEnv = "PODRUN_TEST_CUT"

// TestCutChild is the process that TestCutAnywhere kills: it makes, then removes, a sandbox, and dies
// after its nth step.
func TestCutChild(t *testing.T) {
	spec, ok := os.LookupEnv(cutEnv)
	if !ok {
		t.Skip("run by TestCutAnywhere")
	}
	run, text, _ := strings.Cut(spec, ",")
	left, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	s, _ := newStore(t, run)
	s.step = func(name string) {
		if left--; left == 0 {
			fmt.Println("cut after", name)
			if err := unix.Kill(unix.Getpid(), unix.SIGKILL); err != nil {
				panic(err)
			}
			select {}
		}
	}
	made, err := s.Create(t.Context(), sharingPod(run), 0, "serve")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), made.ID); err != nil {
		t.Fatal(err)
	}
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
		left, err := filepath.Glob(pattern + ocispec.Cgroupfs.OfPod(p) + "/*/cgroup.procs")
		if err != nil || len(left) > 0 {
			t.Errorf("left of the first process: %v, %v", left, err)
		}
	}
	tree, err := cgroup.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.Remove(ocispec.Cgroupfs.OfPod(p)); err != nil {
		t.Error(err)
	}
}

// TestCutAnywhere: after a kill -9 at any step, List shows what is left, Create makes it good and Remove
// removes it all.
func TestCutAnywhere(t *testing.T) {
	needRoot(t)
	steps := 0
	for n := 1; ; n++ {
		run := t.TempDir()
		p := sharingPod(run)
		t.Cleanup(func() { endCgroup(t, p) })
		s, net := newStore(t, run)
		out, killed := cutAfter(t, run, n)
		if !killed {
			bare(t, run, net)
			break
		}
		steps = n
		t.Logf("step %d: %s", n, strings.TrimSpace(out))
		list, err := s.List()
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 {
			// Only then may there be nothing to see: nothing is held.
			if err := os.Remove(s.dir); err != nil {
				t.Fatalf("nothing is listed, but: %v", err)
			}
			bare(t, run, net)
			continue
		}
		if n%2 == 0 {
			made, err := s.Create(t.Context(), p, 0, "serve")
			if err != nil || !made.Ready || made.ID != list[0].ID {
				t.Fatalf("%+v, %v", made, err)
			}
		}
		if err := s.Remove(t.Context(), list[0].ID); err != nil {
			t.Fatal(err)
		}
		bare(t, run, net)
	}
	if steps < 26 {
		t.Fatalf("only %d steps were cut", steps)
	}
}

// cutAfter runs TestCutChild; it is not killed when it has fewer than n steps.
func cutAfter(t *testing.T, run string, n int) (out string, killed bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestCutChild$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s,%d", cutEnv, run, n))
	text, err := cmd.CombinedOutput()
	if err == nil {
		return string(text), false
	}
	if cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("%v: %s", err, text)
	}
	return string(text), true
}
