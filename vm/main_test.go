package vm

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"podrun.io/podrun/internal/test/testimage"
)

const (
	// box is a busybox that the second disk has as box.tar.
	box = "podrun.example/box:1"
	// tool is an image of two versions: see makeTools.
	tool = "podrun.example/tool:1"
)

// setup is what all tests share.
var setup struct {
	dir   string // for what the tests make; removed at the end
	image string // directory of the Debian, by scripts/vmroot.sh
	cargo string // the second disk: the agent, podrun's package, box, tool
	kvm   bool
}

// wanted reports whether the tests are to run; else each skips itself.
func wanted() bool { return os.Getenv("PODRUN_VM") == "1" && os.Getuid() == 0 }

// TestMain is the guest's agent there, its registry, and a CSI driver in a pod of its, and prepares the tests' surroundings here.
func TestMain(m *testing.M) {
	code := 0
	var err error
	switch {
	case os.Getenv("PODRUN_VM_REGISTRY") != "": // first: what the agent starts has its environment
		err = serveRegistry(os.Getenv("PODRUN_VM_REGISTRY"), os.Args[1:])
	case os.Getenv("PODRUN_VM_AGENT") == "1":
		err = serveAgent()
	case os.Getenv("PODRUN_VM_DRIVER") == "1":
		err = serveDriver()
	case wanted():
		code, err = runAll(m)
	default:
		code = m.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
		code = 1
	}
	os.Exit(code)
}

func runAll(m *testing.M) (code int, err error) {
	if setup.dir, err = os.MkdirTemp("", "vm"); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(setup.dir)) }()
	setup.image = os.Getenv("PODRUN_VM_IMAGE")
	if setup.cargo, err = makeCargo(setup.dir, os.Getenv("PODRUN_VM_DEB")); err != nil {
		return 0, err
	}
	setup.kvm = kvmWorks()
	fmt.Printf("virtual machines with %s, kernel and root file system of %s\n", accelerator(), setup.image)
	interrupted, finished := make(chan os.Signal, 1), make(chan int, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() { finished <- m.Run() }()
	select {
	case code := <-finished:
		return code, nil
	case s := <-interrupted:
		// The kernel ends qemu with this process.
		return 1, fmt.Errorf("ended by %v", s)
	}
}

// makeCargo makes the disk that carries what the guest gets: no loop device, no mount.
func makeCargo(dir, deb string) (string, error) {
	agent, err := os.Executable()
	if err != nil {
		return "", err
	}
	tree := filepath.Join(dir, "cargo")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return "", err
	}
	tar, err := testimage.Busybox(tree, box)
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.Rename(tar, filepath.Join(tree, "box.tar")), makeTools(tree)); err != nil {
		return "", err
	}
	for name, from := range map[string]string{"agent": agent, "podrun.deb": deb} {
		if err := run("cp", from, filepath.Join(tree, name)); err != nil {
			return "", err
		}
	}
	disk := filepath.Join(dir, "cargo.img")
	err = run("mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-d", tree, disk, "256M")
	return disk, errors.Join(err, os.RemoveAll(tree))
}

// makeTools makes the versions of an image of the same name, tool-0.tar and tool-1.tar. Each has in /sum what sha256sum
// says of its /data, which no other has.
func makeTools(dir string) error {
	for i := range 2 {
		data := make([]byte, 8<<20)
		_, _ = rand.Read(data) // it never fails
		sum := fmt.Sprintf("%x  -\n", sha256.Sum256(data))
		tar, err := testimage.Busybox(dir, tool, testimage.File("/data", 0o644, data), testimage.File("/sum", 0o644, []byte(sum)))
		if err != nil {
			return err
		}
		if err := os.Rename(tar, filepath.Join(dir, fmt.Sprintf("tool-%d.tar", i))); err != nil {
			return err
		}
	}
	return nil
}

// run runs a program of this machine.
func run(name string, args ...string) error {
	c := exec.CommandContext(context.Background(), name, args...)
	c.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if c.Err != nil { // not in this process's PATH
		c.Path, c.Err = filepath.Join("/usr/sbin", name), nil
	}
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}
