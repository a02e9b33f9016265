package e2e

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// engine is a container engine: the command and its global flags.
type engine struct {
	t    *testing.T
	args []string
	run  []string // flags of run
}

// newEngine returns docker, or podman with a store of its own; and a directory for the test.
func newEngine(t *testing.T) (*engine, string) {
	t.Helper()
	kind := os.Getenv("PODRUN_E2E_ENGINE")
	if !wanted() || kind == "" {
		t.Skip("runs as root by make e2e (PODRUN_E2E=1, PODRUN_E2E_ENGINE=podman or docker)")
	}
	dir, err := os.MkdirTemp("", "pc")
	must(t, err)
	e := &engine{t: t, args: []string{kind}, run: []string{"run", "--rm", "--privileged", "--network=none"}}
	if kind == "podman" {
		e.args = append(e.args, "--root="+dir+"/root", "--runroot="+dir+"/run", "--storage-driver=overlay",
			"--cgroup-manager=cgroupfs", "--events-backend=none")
		// podman raises the limits above what the machine may allow; crun refuses hybrid cgroups.
		e.run = append(e.run, "--runtime=runc", "--ulimit=nofile=4096:4096", "--ulimit=nproc=8192:8192")
	}
	t.Cleanup(func() { cleanEngine(t, dir) })
	return e, dir
}

// do runs a command of the engine.
func (e *engine) do(args ...string) result {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	all := append(append([]string{}, e.args[1:]...), args...)
	return outcome(e.t, exec.CommandContext(ctx, e.args[0], all...), "")
}

// cleanEngine removes the directory, and what podman has left in it and beside it.
func cleanEngine(t *testing.T, dir string) {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	for i := len(mounts) - 1; i >= 0; i-- {
		err = errors.Join(err, unix.Unmount(mounts[i].Mountpoint, unix.MNT_DETACH))
	}
	if err := errors.Join(err, os.RemoveAll(dir)); err != nil {
		t.Error(err)
	}
	// podman leaves its parent cgroup; it goes when nobody else is in it.
	var groups []string
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(path, "/libpod_parent") {
			groups = append(groups, path)
		}
		return nil
	})
	for i := len(groups) - 1; i >= 0; i-- {
		_ = os.Remove(groups[i])
	}
}

// TestInAContainer builds the image from the Dockerfile and runs podrun with its own containerd in a
// privileged container, as a CI job does.
func TestInAContainer(t *testing.T) {
	e, dir := newEngine(t)
	base, err := exec.Command("../scripts/base.sh").Output()
	if err != nil {
		t.Fatalf("making a base image: %v", err)
	}
	if r := e.do("import", strings.TrimSpace(string(base)), "localhost/podrun-base:1"); r.code != 0 {
		t.Fatalf("import: %v", r)
	}
	build := exec.Command("../scripts/image.sh", "localhost/podrun:e2e", "localhost/podrun-base:1")
	build.Env = append(os.Environ(), "ENGINE="+strings.Join(e.args, " "))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("image.sh: %v\n%s", err, out)
	}
	work := filepath.Join(dir, "work")
	must(t, os.Mkdir(work, 0o755))
	archive, err := os.ReadFile(setup.image)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(work, "box.tar"), archive, 0o644))
	must(t, os.WriteFile(filepath.Join(work, "good.yaml"), []byte(manifest("good", "Never", "echo from within; exit 0")), 0o644))
	must(t, os.WriteFile(filepath.Join(work, "bad.yaml"), []byte(manifest("bad", "Never", "echo the reason; exit 7")), 0o644))

	for _, c := range []struct {
		name, command string
		code          int
		stdout        string
	}{
		{"succeeds", "podrun images load /work/box.tar >&2 && podrun once --manifests /work/good.yaml --logs all --rm", 0, "from within"},
		{"fails", "podrun images load /work/box.tar >&2 && podrun once --manifests /work/bad.yaml", 1, "the reason"},
		{"keeps and takes down", "podrun images load /work/box.tar >&2; podrun once --manifests /work/bad.yaml >&2; podrun get pods; podrun down --all", 0, "bad-"},
	} {
		began := time.Now()
		args := append(append([]string{}, e.run...), "-v", work+":/work:ro", "--entrypoint=/bin/sh", "localhost/podrun:e2e", "-c", c.command)
		r := e.do(args...)
		if r.code != c.code || !strings.Contains(r.stdout, c.stdout) {
			t.Errorf("%s: %v", c.name, r)
		}
		t.Logf("%s: %v", c.name, time.Since(began))
	}
}

// TestRootOfAContainersCgroups: in the root of a container's cgroups, where engines start it, once and serve move there
// what would keep the kernel from limiting pods, whatever else fails.
func TestRootOfAContainersCgroups(t *testing.T) {
	if !wanted() {
		t.Skip("runs as root by make e2e (PODRUN_E2E=1)")
	}
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup2"))
	if err != nil || len(mounts) == 0 {
		t.Skipf("no cgroup version 2 here: %v", err)
	}
	for _, command := range []string{"once", "serve"} {
		dir := t.TempDir()
		root := filepath.Join(mounts[0].Mountpoint, "podrun-e2e-"+strings.ToLower(rand.Text()))
		must(t, os.Mkdir(root, 0o755))
		in, err := os.Open(root)
		must(t, err)
		must(t, os.WriteFile(dir+"/pod.yaml", []byte(manifest("pod", "Never", "true")), 0o600))
		script := `mount -t cgroup2 cgroup2 /sys/fs/cgroup
			"$0" "$1" --manifests "$2/pod.yaml" --containerd-address "$2/none" --root-dir "$2/root" --run-dir "$2/run" --log-dir "$2/log" >&2 || true
			grep ^0:: /proc/self/cgroup`
		c := exec.Command("sh", "-euc", script, setup.podrun, command, dir)
		c.SysProcAttr = &syscall.SysProcAttr{
			UseCgroupFD: true, CgroupFD: int(in.Fd()), Unshareflags: unix.CLONE_NEWCGROUP | unix.CLONE_NEWNS,
		}
		if r := outcome(t, c, ""); strings.TrimSpace(r.stdout) != "0::/init" {
			t.Errorf("%s: %v", command, r)
		}
		must(t, in.Close())
		_ = os.Remove(root + "/init") // it may be missing
		must(t, os.Remove(root))
	}
}
