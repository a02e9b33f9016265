package orphan

import (
	"bufio"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"podrun.io/podrun/internal/runtime/containerd/instance"
	"podrun.io/podrun/internal/test"
)

func TestCutOffEnd(t *testing.T) {
	t.Parallel()
	begun := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, x := range map[string]struct{ passed, left time.Duration }{
		"just begun":             {0, cutOffTime},
		"a while ago":            {time.Second, cutOffTime - time.Second},
		"long ago":               {time.Hour, cutOffTime - time.Hour},
		"the clock was set back": {-time.Hour, cutOffTime},
	} {
		now := begun.Add(x.passed)
		if left := cutOffEnd(begun, now).Sub(now); left != x.left {
			t.Errorf("%s: %s, want %s", name, left, x.left)
		}
	}
}

// cgroup returns the path of a cgroup with one below it, and the directory of that one.
func cgroup(t *testing.T) (path, below string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	mounts, err := instance.Hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	path = "/podrun-test-" + strings.ToLower(rand.Text())
	for _, m := range mounts {
		if strings.Contains(m.VFSOptions, "cpuset") { // a new one accepts no processes
			continue
		}
		below = filepath.Join(m.Mountpoint, path, "system.slice")
		if err := os.MkdirAll(below, 0o755); err == nil {
			t.Cleanup(func() {
				test.Eventually(t, "the cgroup is removed", func() bool {
					_ = syscall.Rmdir(below)
					return syscall.Rmdir(filepath.Dir(below)) == nil
				})
			})
			return path, below
		} else if !errors.Is(err, syscall.EROFS) {
			t.Fatal(err)
		}
	}
	t.Skip("cgroups are read-only here")
	return "", ""
}

// shim starts a process that looks like the shim of another containerd, with a child.
func shim(t *testing.T) (pid, child int) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "sleep 1000 & echo $!; wait")
	cmd.Args[0] = "containerd-shim-runc-v2"
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		child, err = strconv.Atoi(strings.TrimSpace(line))
	}
	t.Cleanup(func() {
		if runs(child) {
			_ = syscall.Kill(child, syscall.SIGKILL)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if err != nil {
		t.Fatal(err)
	}
	test.Eventually(t, "the child is the program that it is to be", func() bool { return runs(child) })
	return cmd.Process.Pid, child
}

// runs reports whether a process is sleep and has not ended.
func runs(pid int) bool {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return strings.HasPrefix(string(text), "sleep")
}

// TestShimInTheContainer: all that is below a container's cgroup is killed, although it is a shim's there; what the shim
// of another containerd serves is not.
func TestShimInTheContainer(t *testing.T) {
	for name, inside := range map[string]bool{"another containerd's": false, "in the container": true} {
		t.Run(name, func(t *testing.T) {
			path, below := cgroup(t)
			pid, child := shim(t)
			pids := []int{child}
			if inside {
				pids = append(pids, pid)
			}
			for _, pid := range pids {
				if err := os.WriteFile(filepath.Join(below, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
					t.Fatal(err)
				}
			}
			o := &Cleaner{namespace: "podrun", address: "/run/containerd.sock", log: slog.New(slog.DiscardHandler)}
			if others := o.ofOthers(path); others == inside {
				t.Errorf("of others: %v", others)
			}
			if _, err := o.KillProcesses(t.Context(), "c", path); err != nil || runs(child) == inside {
				t.Errorf("it runs: %v, %v", runs(child), err)
			}
		})
	}
}
