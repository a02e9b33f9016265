package shim_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/shim"
)

// hold makes this process one that nobody can read the command line of: the kernel waits for a file's server with the
// lock of the process's memory, which a reader waits for. It becomes another user first, starts a child, and prints that
// one's ID.
func hold(file string) {
	uid, _ := strconv.Atoi(os.Getenv("HOLD_UID"))
	c := exec.Command("sleep", "60")
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	check(os.Chdir(filepath.Dir(file))) // what leads there is not the other user's
	file = filepath.Base(file)
	read, err := unix.Open(file, unix.O_RDONLY, 0)
	check(err)
	check(c.Start())
	check(syscall.Setuid(uid))
	go unix.Read(read, make([]byte, 10)) // locks the page
	time.Sleep(200 * time.Millisecond)
	direct, err := unix.Open(file, unix.O_RDONLY, 0)
	check(err)
	fmt.Println(c.Process.Pid)
	_, err = unix.Mmap(direct, 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE) // waits for that page
	check(err)
	time.Sleep(time.Minute)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// silent mounts a file system with the file f, whose server answers everything but reading. The second open of the file
// is one without the page cache. end ends all that waits for it.
func silent(t *testing.T) (file string, end func()) {
	t.Helper()
	dir := t.TempDir()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("needs FUSE: %v", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd)
	if err := unix.Mount("silent", dir, "fuse", 0, options); err != nil {
		unix.Close(fd)
		t.Skipf("needs to mount: %v", err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		serve(fd)
	}()
	end = sync.OnceFunc(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH|unix.MNT_FORCE); err != nil {
			t.Error(err)
		}
		<-served
		unix.Close(fd)
	})
	t.Cleanup(end)
	return filepath.Join(dir, "f"), end
}

// serve answers the kernel's requests, see linux/fuse.h.
func serve(fd int) {
	words := binary.LittleEndian
	attributes := func(inode uint64) []byte {
		mode := uint32(unix.S_IFREG | 0o644)
		if inode == 1 {
			mode = unix.S_IFDIR | 0o755
		}
		out, _ := binary.Append(nil, words, []uint64{inode, 4096, 8, 0, 0, 0})
		out, _ = binary.Append(out, words, []uint32{0, 0, 0, mode, 1, 0, 0, 0, 4096, 0})
		return out
	}
	opened := uint32(0)
	for in := make([]byte, 1<<20); ; {
		if _, err := unix.Read(fd, in); err != nil && err != unix.EINTR {
			return // unmounted
		}
		var answer []byte
		failed := int32(0)
		switch node := words.Uint64(in[16:]); words.Uint32(in[4:]) {
		case 26: // INIT
			answer, _ = binary.Append(nil, words, []uint32{7, 31, 1 << 17, 0, 10<<16 | 12, 1 << 17, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0})
		case 1: // LOOKUP
			answer, _ = binary.Append(nil, words, []uint64{2, 0, 1000, 1000, 0})
			answer = append(answer, attributes(2)...)
		case 3: // GETATTR
			answer, _ = binary.Append(nil, words, []uint64{1000, 0})
			answer = append(answer, attributes(node)...)
		case 14: // OPEN
			opened++
			answer, _ = binary.Append(nil, words, []uint32{opened, 0, 2 | min(1, opened-1), 0})
		case 15, 2, 42, 36: // READ, and what has no answer: FORGET, BATCH_FORGET, INTERRUPT
			continue
		default:
			failed = -int32(unix.ENOSYS)
		}
		out, _ := binary.Append(nil, words, uint32(16+len(answer)))
		out, _ = binary.Append(out, words, failed)
		_, _ = unix.Write(fd, append(append(out, in[8:16]...), answer...))
	}
}

// named returns the path of the test binary under another name.
func named(t *testing.T, name string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(filepath.Dir(self), name)
	if err := os.Link(self, path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(path) })
	return path
}

// held starts a process with a shim's arguments whose command line nobody can read, and returns a child of it.
func held(t *testing.T, name string, uid int, flags uintptr) (child int) {
	t.Helper()
	file, end := silent(t)
	c := exec.Command(named(t, name), "-namespace", namespace, "-id", "abc", "-address", address)
	c.Args[0] = "containerd-shim-runc-v2"
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOLD=" + file, fmt.Sprintf("HOLD_UID=%d", uid)}
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		end()
		_ = c.Process.Signal(unix.SIGTERM)
		if _ = c.Wait(); c.ProcessState.Sys().(syscall.WaitStatus).Signal() == unix.SIGKILL {
			t.Error("it was killed")
		}
	})
	if _, err := fmt.Fscan(out, &child); err != nil { // by its number there
		t.Fatal(err)
	}
	eventually(t, "the process to hold the lock", func() bool { return waits(c.Process.Pid) })
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", c.Process.Pid))
	for _, list := range lists {
		if text, _ := os.ReadFile(list); len(text) > 0 {
			_, err = fmt.Sscan(string(text), &child)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return child
}

// waits reports whether a thread of the process waits where no signal ends it.
func waits(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, thread := range threads {
		if text, _ := os.ReadFile(thread); strings.Contains(string(text), ") D ") {
			return true
		}
	}
	return false
}

// TestHeldCommandLine: a user of the machine, and root in a container, have a process with the arguments of a shim, and
// whoever reads them waits for ever. Nobody waits for them.
func TestHeldCommandLine(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for name, x := range map[string]struct {
		program string
		uid     int
		flags   uintptr
		isShim  bool
	}{
		"another user's":                         {"containerd-shim-user", 65534, 0, true},
		"another program's":                      {"program", 65534, 0, false},
		"in a container":                         {"containerd-shim-inside", 0, unix.CLONE_NEWNS | unix.CLONE_NEWPID, true},
		"a program in a container":               {"program-inside", 0, unix.CLONE_NEWNS | unix.CLONE_NEWPID, false},
		"a program with the machine's processes": {"program-with", 0, unix.CLONE_NEWNS, false},
	} {
		t.Run(name, func(t *testing.T) {
			var all sync.WaitGroup
			t.Cleanup(all.Wait) // after nothing is held any more
			child := held(t, x.program, x.uid, x.flags)
			done := make(chan struct{})
			all.Go(func() {
				defer close(done)
				if err := shim.Kill(shim.Any, "-namespace", namespace, "-id", "abc"); err != nil {
					t.Error(err)
				}
				// What has a shim's program may serve another containerd in a container.
				if of, mine := shim.Of(child, "-address", address); of != 0 != x.isShim || mine {
					t.Errorf("the child descends from the shim %d, of this containerd: %v", of, mine)
				}
			})
			select {
			case <-done:
			case <-time.After(5 * time.Second):
				t.Error("it waits for the process")
			}
		})
	}
}

// TestShimElsewhere: shims have another mount namespace than podrun, that of a containerd which has one of its own, or
// that of a former process of it.
func TestShimElsewhere(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	socket := filepath.Join(sockets(t), "c.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	program := named(t, "containerd-shim-elsewhere")
	for _, by := range [][]string{{"-id", "abc"}, {"-address", socket}} {
		c := exec.Command(program, "-namespace", namespace, "-id", "abc", "-address", socket)
		c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = c.Process.Kill(), c.Wait() })
		eventually(t, "the shim to run", func() bool { return strings.Contains(of(c.Process.Pid, "cmdline"), socket) })
		if err := shim.Kill(shim.Any, append([]string{"-namespace", namespace}, by...)...); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the shim to end", func() bool { return of(c.Process.Pid, "cmdline") == "" })
	}
}
