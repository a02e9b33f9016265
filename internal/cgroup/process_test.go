package cgroup

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

func TestUnifiedPath(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"0::/system.slice/podrun.service\n":              "/system.slice/podrun.service",
		"2:net_cls:/\n0::/system.slice/podrun.service\n": "/system.slice/podrun.service",
		"0::/\n":                              "/",
		"1:name=systemd:/a/0::/b\n0::/../c\n": "/../c",
		"12:memory:/docker/1\n1:cpu,cpuacct:/docker/1\n": "",
		"": "",
	} {
		if got := unifiedPath(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// The parts of TestLeaveRoot that a process with namespaces of its own plays.
var parts = map[string]func(t *testing.T, dir string){
	"leave": leave, "outside": leaveBesideOutside, "joining": leave, "threaded": leaveThreaded, "given": leaveGiven,
	"read-only": leaveReadOnly, "machine": leaveMachine,
	"one of several": func(t *testing.T, dir string) {
		if _, err := os.Stdin.Read(make([]byte, 1)); err == nil {
			t.Fatal("nobody writes here")
		}
		leaveAndSet(t, &Tree{unified: dir}, "/podrun/pod"+strconv.Itoa(os.Getpid()))
	},
}

const partEnv, dirEnv = "PODRUN_TEST_PART", "PODRUN_TEST_DIR"

// as returns this program, in that part.
func as(part, dir string) *exec.Cmd {
	c := exec.Command("/proc/self/exe", "-test.run=^TestLeaveRoot$", "-test.v")
	c.Env = append(os.Environ(), partEnv+"="+part, dirEnv+"="+dir)
	return c
}

// TestLeaveRoot: in a container podrun gives the controllers to pods' cgroups although it was started in the root. The
// machine's own root stays as it is, and what cannot be done is an error.
func TestLeaveRoot(t *testing.T) {
	if part := parts[os.Getenv(partEnv)]; part != nil {
		part(t, os.Getenv(dirEnv))
		return
	}
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup2"))
	if err != nil || len(mounts) == 0 {
		t.Skipf("no cgroup version 2 here: %v", err)
	}
	top := &Tree{unified: mounts[0].Mountpoint}
	for _, part := range []string{"leave", "outside", "joining", "threaded", "given", "read-only"} {
		t.Run(part, func(t *testing.T) {
			path := "/podrun-test-" + strings.ToLower(rand.Text())
			t.Cleanup(func() { removeTree(t, top, path) })
			root, err := top.Enter(path)
			if errors.Is(err, syscall.EROFS) {
				t.Skip("cgroups are read-only here")
			}
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			inRoot := syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(root.Fd())}
			other := exec.Command("sleep", "1000")
			if part == "outside" || part == "joining" {
				other.SysProcAttr = &inRoot
				if err := other.Start(); err != nil {
					t.Fatal(err)
				}
				defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
			}
			c := as(part, t.TempDir())
			born := inRoot
			born.Cloneflags, born.Unshareflags = syscall.CLONE_NEWPID, syscall.CLONE_NEWCGROUP|syscall.CLONE_NEWNS
			c.SysProcAttr = &born
			var out strings.Builder
			c.Stdout, c.Stderr = &out, &out
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			if part == "joining" {
				awaitMoved(t, top, path, c.Process.Pid)
				_ = other.Process.Kill()
			}
			if err := c.Wait(); err != nil {
				t.Errorf("%v\n%s", err, out.String())
			}
		})
	}
	t.Run("machine", func(t *testing.T) {
		c := as("machine", t.TempDir())
		c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// awaitMoved waits until a process has left the root at path, or has ended.
func awaitMoved(t *testing.T, top *Tree, path string, pid int) {
	t.Helper()
	for {
		text, err := os.ReadFile(filepath.Join(top.unified, path, "cgroup.procs"))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(strings.Fields(string(text)), strconv.Itoa(pid)) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// removeTree removes a cgroup and all in it.
func removeTree(t *testing.T, tree *Tree, path string) {
	entries, err := os.ReadDir(filepath.Join(tree.unified, path))
	if err != nil {
		t.Error(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			removeTree(t, tree, path+"/"+e.Name())
		}
	}
	if err := tree.Remove(path); err != nil {
		t.Error(err)
	}
}

func mountCgroups(t *testing.T, dir string, flags uintptr) *Tree {
	t.Helper()
	err := unix.Mount("cgroup2", dir, "cgroup2", 0, "")
	if err == nil && flags != 0 {
		err = unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|flags, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	return &Tree{unified: dir}
}

// limited are resources for which the root must give a controller that threads cannot have; nil if it has none.
func limited(t *testing.T, tree *Tree) *specs.LinuxResources {
	t.Helper()
	switch has := strings.Fields(value(t, tree, "", "", "", "cgroup.controllers")); {
	case slices.Contains(has, "memory"):
		return &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: new(int64(64 << 20))}}
	case slices.Contains(has, "hugetlb"):
		return &specs.LinuxResources{HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2MB", Limit: 4 << 20}}}
	default:
		return nil
	}
}

// leaveAndSet leaves the root and makes the cgroup of a pod, in which a process can be.
func leaveAndSet(t *testing.T, tree *Tree, pod string) {
	t.Helper()
	if err := tree.LeaveRoot(); err != nil {
		t.Fatal(err)
	}
	r := limited(t, tree)
	// Without a controller to give, one that is born meanwhile may stay there, and disturbs nothing.
	if got := value(t, tree, "", "", "", "cgroup.procs"); got != "" && r != nil {
		t.Errorf("in the root are still %q", got)
	}
	text, err := os.ReadFile("/proc/self/cgroup")
	if got := unifiedPath(string(text)); err != nil || got != "/init" {
		t.Errorf("this process is in %q, %v", got, err)
	}
	if r == nil {
		return
	}
	if err := tree.Set(pod, r); err != nil {
		t.Fatal(err)
	}
	dir, err := tree.Enter(pod)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	c := exec.Command("true")
	c.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if err := c.Run(); err != nil {
		t.Errorf("a process in %s: %v", pod, err)
	}
}

func leave(t *testing.T, dir string) {
	tree := mountCgroups(t, dir, 0)
	forking := exec.Command("sh", "-c", "while :; do true & sleep 0; done")
	if err := forking.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = forking.Process.Kill(); _ = forking.Wait() }()
	r := limited(t, tree)
	if r == nil {
		t.Log("the root has no controller to give")
	} else if err := tree.Set("/podrun/pod", r); err == nil {
		t.Fatal("the kernel gives the controllers with processes in the root")
	}
	several, begins := make([]*exec.Cmd, 4), []io.Closer{}
	output := make([]strings.Builder, len(several))
	for i := range several {
		c := as("one of several", dir)
		c.Stdout, c.Stderr = &output[i], &output[i]
		several[i] = c
		begin, err := c.StdinPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		begins = append(begins, begin)
		defer func() { _ = c.Process.Kill() }()
	}
	for _, begin := range begins {
		_ = begin.Close()
	}
	leaveAndSet(t, tree, "/podrun/pod")
	for i, c := range several {
		if err := c.Wait(); err != nil {
			t.Errorf("%v\n%s", err, output[i].String())
		}
	}
	if r == nil {
		return
	}
	// Another process cannot come into the root, and keep the pods from their controllers there.
	enter := func() error { return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0) }
	if err := enter(); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("entering the root: %v", err)
	}
	leaveAndSet(t, tree, "/podrun/pod") // from init
	// Without pods nothing keeps it from being there, and the next podrun begins as the first one.
	for _, path := range []string{"/podrun", ""} {
		withdrawControllers(dir + path)
	}
	if err := enter(); err != nil {
		t.Fatal(err)
	}
	leaveAndSet(t, tree, "/podrun/pod")
}

func leaveBesideOutside(t *testing.T, dir string) {
	refused(t, mountCgroups(t, dir, 0), time.Now(), "outside of the container's PID namespace")
}

// leaveThreaded is in a root in which a cgroup is threaded already, as those of best-effort pods are that an earlier
// podrun started.
func leaveThreaded(t *testing.T, dir string) {
	tree := mountCgroups(t, dir, 0)
	pods, err := tree.Enter("/podrun")
	if err != nil {
		t.Fatal(err)
	}
	defer pods.Close()
	put(t, filepath.Join(dir, "podrun", "cgroup.type"), "threaded")
	pod := exec.Command("sleep", "1000")
	pod.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(pods.Fd())}
	if err := pod.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_, _ = pod.Process.Kill(), pod.Wait()
		if err := os.Remove(filepath.Join(dir, "podrun")); err != nil { // its cgroup.procs cannot be read
			t.Error(err)
		}
	}()
	if err := tree.leaveRoot(time.Now()); err != nil {
		t.Error(err)
	}
	if got := value(t, tree, "", "", "", "cgroup.type"); got != "domain threaded" {
		t.Errorf("the root is %q", got)
	}
}

// leaveGiven is in a root that gave a controller which threads can have, while it had processes.
func leaveGiven(t *testing.T, dir string) {
	tree := mountCgroups(t, dir, 0)
	has := strings.Fields(value(t, tree, "", "", "", "cgroup.controllers"))
	i := slices.IndexFunc(has, func(name string) bool { return slices.Contains([]string{"cpu", "cpuset", "pids"}, name) })
	if i < 0 {
		t.Skip("the root has no controller for threads")
	}
	put(t, filepath.Join(dir, "cgroup.subtree_control"), "+"+has[i])
	leaveAndSet(t, tree, "/podrun/pod")
}

func leaveReadOnly(t *testing.T, dir string) {
	refused(t, mountCgroups(t, dir, unix.MS_RDONLY), time.Now().Add(emptyTime), syscall.EROFS.Error())
}

func refused(t *testing.T, tree *Tree, end time.Time, want string) {
	t.Helper()
	if err := tree.leaveRoot(end); !errors.Is(err, errRoot) || !strings.Contains(fmt.Sprint(err), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// leaveMachine is on the machine's root, where nothing can be changed by mistake: it is read-only here.
func leaveMachine(t *testing.T, dir string) {
	tree := mountCgroups(t, dir, unix.MS_RDONLY)
	if exists(filepath.Join(dir, "cgroup.type")) {
		t.Skip("this is a container")
	}
	if err := tree.LeaveRoot(); err != nil {
		t.Error(err)
	}
}
