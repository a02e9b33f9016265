package e2e

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
