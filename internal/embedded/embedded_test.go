package embedded_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/embedded"
)

func TestEnsureStartsOnceAndEndsByItself(t *testing.T) {
	o := options(t)
	if embedded.Running(o.Dirs) || embedded.PID(o.Dirs) != 0 {
		t.Fatal("running before the start")
	}
	begin := time.Now()
	first := ensure(t, o)
	cold := time.Since(begin)
	pid := daemonPID(t, o.Dirs)
	ctx, c := dial(t, first)
	if v, err := c.Version(ctx); err != nil || v.Version == "" {
		t.Fatalf("version %v, %v", v, err)
	}
	begin = time.Now()
	second := ensure(t, o)
	t.Logf("ready: cold %v, warm %v; daemon's %s", cold, time.Since(begin), rss(t, pid))
	if got := embedded.PID(o.Dirs); got != pid {
		t.Errorf("process ID %d, want %d", got, pid)
	}
	if got := daemonPID(t, o.Dirs); got != pid {
		t.Errorf("second Ensure started daemon %d beside %d", got, pid)
	}
	if sid, err := syscallGetsid(pid); err != nil || sid != pid {
		t.Errorf("the daemon's session is %d, %v; want its own", sid, err)
	}
	if st, err := os.Stat(first.Address()); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("socket %v, %v; want mode 0600", st, err)
	}
	if n := first.Snapshotter(); n != "overlayfs" && n != "native" {
		t.Errorf("snapshotter %q", n)
	}

	first.Close()
	time.Sleep(3 * grace) // it has to stay: there is nothing to wait for
	if !embedded.Running(o.Dirs) {
		t.Fatal("ended while a lease was held")
	}
	second.Close()
	eventually(t, "the daemon ends without leases", func() bool { return !embedded.Running(o.Dirs) })
	if got := embedded.PID(o.Dirs); got != 0 {
		t.Errorf("process ID %d after its end", got)
	}
	for _, left := range []string{first.Address(), filepath.Join(o.Dirs.Embedded().State(), "ttrpc.sock")} {
		if _, err := os.Lstat(left); err == nil {
			t.Errorf("left behind: %s", left)
		}
	}
	noMounts(t, o.Dirs)
	if ensure(t, o); daemonPID(t, o.Dirs) == pid {
		t.Error("no new daemon after the old one's end")
	}
}

func TestConcurrentEnsureMakesOneDaemon(t *testing.T) {
	o := options(t)
	leases := make([]*embedded.Lease, 8)
	errs := make([]error, len(leases))
	var all sync.WaitGroup
	for i := range leases {
		all.Go(func() { leases[i], errs[i] = embedded.Ensure(t.Context(), o) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if pids := processes(t, "serve\x00"+o.Dirs.Root); len(pids) != 1 {
		t.Errorf("daemons %v", pids)
	}
	for _, l := range leases {
		l.Close()
	}
	eventually(t, "the daemon ends", func() bool { return !embedded.Running(o.Dirs) })
}

// TestEnsureWhileEnding: clients call Ensure at the moment at which the daemon exits.
func TestEnsureWhileEnding(t *testing.T) {
	o := options(t)
	for i := range 8 {
		l, err := embedded.Ensure(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, c := dial(t, l)
		if _, err := c.Version(ctx); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		l.Close()
		time.Sleep(grace - 20*time.Millisecond + time.Duration(i)*5*time.Millisecond)
	}
}

// TestWarm: a daemon that is kept warm is found by the next client, but not one whose directories were removed or
// that was cooled.
func TestWarm(t *testing.T) {
	for _, then := range []string{"nothing", "root removed", "run removed", "cooled"} {
		t.Run(then, func(t *testing.T) {
			t.Parallel()
			o := options(t)
			l, err := embedded.Ensure(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			pid := daemonPID(t, o.Dirs)
			err = l.KeepWarm()
			switch then {
			case "cooled":
				err = errors.Join(err, l.Cool(), l.Cool())
			case "root removed":
				err = errors.Join(err, os.RemoveAll(o.Dirs.Root))
			case "run removed":
				err = errors.Join(err, os.RemoveAll(o.Dirs.Run))
			}
			if err := errors.Join(err, l.Close()); err != nil {
				t.Fatal(err)
			}
			switch then {
			case "nothing":
				time.Sleep(5 * grace) // it has to stay: there is nothing to wait for
			case "run removed", "cooled": // the root directory has one daemon at a time
				eventually(t, "it ends", func() bool { return syscall.Kill(pid, 0) != nil })
			}
			ctx, c := dial(t, ensure(t, o))
			if _, err := c.ContentStore().Status(ctx, "none"); !errdefs.IsNotFound(err) {
				t.Errorf("its data: %v", err)
			}
			if same := daemonPID(t, o.Dirs) == pid; same != (then == "nothing") {
				t.Errorf("the same daemon: %t", same)
			}
		})
	}
}

// TestDataRemovedInUse: a client is not given a daemon whose data was removed, also if another client uses it.
func TestDataRemovedInUse(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(t *testing.T, root string) error{
		"removed": func(_ *testing.T, root string) error { return os.RemoveAll(root) },
		// A disk is mounted late; a podrun has used it before.
		"mounted over": func(t *testing.T, root string) error {
			disk := t.TempDir()
			if err := os.CopyFS(disk, os.DirFS(root)); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
			return unix.Mount(disk, root, "", unix.MS_BIND, "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t)
			ensure(t, o)
			if err := remove(t, o.Dirs.Root); err != nil {
				t.Fatal(err)
			}
			_, err := embedded.Ensure(t.Context(), o)
			want := fmt.Sprintf("podrun's containerd, process %d, has no files in %s", daemonPID(t, o.Dirs), o.Dirs.Root)
			if !errors.Is(err, embedded.ErrWithoutData) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		})
	}
}

func TestEnsureAfterKill(t *testing.T) {
	o := options(t)
	ensure(t, o)
	pid := daemonPID(t, o.Dirs)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ctx, c := dial(t, ensure(t, o))
	if _, err := c.Version(ctx); err != nil {
		t.Error(err)
	}
	if daemonPID(t, o.Dirs) == pid {
		t.Error("the killed daemon is still noted")
	}
	eventually(t, "the killed daemon is reaped", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
}

// TestKilledWhileItStarts: Ensure returns ErrKilled if the daemon was killed, and not an error of
// the daemon.
func TestKilledWhileItStarts(t *testing.T) {
	o := options(t)
	o.Args = []string{"killed"}
	if _, err := embedded.Ensure(t.Context(), o); !errors.Is(err, embedded.ErrKilled) {
		t.Errorf("got %v", err)
	}
}

// TestRemovedDirectories: a daemon that no client can reach any more exits and releases the root
// directory.
func TestRemovedDirectories(t *testing.T) {
	o := options(t)
	l := ensure(t, o)
	pid := daemonPID(t, o.Dirs)
	if err := errors.Join(l.Close(), os.RemoveAll(o.Dirs.Run)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the daemon ends", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
	ctx, c := dial(t, ensure(t, o))
	if _, err := c.Version(ctx); err != nil {
		t.Error(err)
	}
}

// TestRemovedDirectoriesOfATask: a daemon that no client can reach exits even if there is a task;
// another daemon waits for its exit.
func TestRemovedDirectoriesOfATask(t *testing.T) {
	o := options(t)
	l := ensure(t, o)
	ctx, c := dial(t, l)
	_, task := startTask(ctx, t, c, o.Dirs)
	pid := daemonPID(t, o.Dirs)
	gone := o.Dirs.Run + ".gone" // as if it had been removed, but for its mounts
	if err := errors.Join(l.Close(), os.Rename(o.Dirs.Run, gone)); err != nil {
		t.Fatal(err)
	}
	again := ensure(t, o)
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("two daemons at once: %v", err)
	}
	// Back, so that the task can be ended as usual.
	again.Close()
	if err := errors.Join(os.RemoveAll(o.Dirs.Run), os.Rename(gone, o.Dirs.Run)); err != nil {
		t.Fatal(err)
	}
	ctx, c = dial(t, ensure(t, o))
	ctr, err := c.LoadContainer(ctx, "sleeper")
	if err != nil {
		t.Fatal(err)
	}
	adopted, err := ctr.Task(ctx, nil)
	if err != nil || adopted.Pid() != task.Pid() {
		t.Fatalf("not the same task: %v", err)
	}
	if _, err := adopted.Delete(ctx, client.WithProcessKill); err != nil {
		t.Error(err)
	}
	if err := ctr.Delete(ctx); err != nil {
		t.Error(err)
	}
}

// TestDaemonKeepsNothingOfItsStarter: the daemon inherits no open descriptor. A CI step whose pipe
// a daemon kept open would never end.
func TestDaemonKeepsNothingOfItsStarter(t *testing.T) {
	o := options(t)
	var p [2]int
	if err := syscall.Pipe(p[:]); err != nil { // inherited by children, other than os.Pipe's
		t.Fatal(err)
	}
	if err := syscall.SetNonblock(p[0], true); err != nil {
		t.Fatal(err)
	}
	r := os.NewFile(uintptr(p[0]), "pipe")
	defer r.Close()
	ensure(t, o)
	if err := syscall.Close(p[1]); err != nil {
		t.Fatal(err)
	}
	if err := r.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("reading gives %v; the daemon has the pipe open", err)
	}
	if cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", daemonPID(t, o.Dirs))); err != nil || cwd != "/" {
		t.Errorf("the daemon's directory is %s, %v", cwd, err)
	}
}

func TestEnsureSaysWhatIsWrong(t *testing.T) {
	o := options(t)
	t.Run("long path", func(t *testing.T) {
		o := o
		o.Dirs.Run = filepath.Join(o.Dirs.Run, strings.Repeat("x", 100))
		if _, err := embedded.Ensure(t.Context(), o); err == nil || !strings.Contains(err.Error(), "use a shorter run directory") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("daemon dies", func(t *testing.T) {
		o := o
		o.Args = []string{"serve", "/dev/null", o.Dirs.Run}
		_, err := embedded.Ensure(t.Context(), o)
		if err == nil || !strings.Contains(err.Error(), "last words") || !strings.Contains(err.Error(), "/dev/null") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("no runc", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		if _, err := embedded.Ensure(t.Context(), o); !errors.Is(err, embedded.ErrNoRunc) {
			t.Errorf("error %v", err)
		}
	})
	if embedded.Running(o.Dirs) {
		t.Error("a daemon was started")
	}
}

func TestServeRefusesASecondDaemon(t *testing.T) {
	o := options(t)
	ensure(t, o)
	if err := embedded.Serve(t.Context(), o); !errors.Is(err, embedded.ErrRunning) {
		t.Errorf("error %v", err)
	}
}

func TestServeRefusesASharedRoot(t *testing.T) {
	o, other := options(t), options(t)
	ensure(t, o)
	other.Dirs.Root = o.Dirs.Root
	other.Args = []string{"serve", other.Dirs.Root, other.Dirs.Run}
	if _, err := embedded.Ensure(t.Context(), other); err == nil || !strings.Contains(err.Error(), "another run directory, "+o.Dirs.Run) {
		t.Errorf("error %v", err)
	}
}

// TestSnapshotterOfAFullDisk: where nothing more can be written, overlayfs is not given up for copies of all images.
func TestSnapshotterOfAFullDisk(t *testing.T) {
	o := options(t)
	for _, dir := range []string{o.Dirs.Root, o.Dirs.Embedded().State()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mount("tmpfs", o.Dirs.Root, "tmpfs", 0, "nr_inodes=4,size=64k"); err != nil {
		t.Skip("no file system can be mounted:", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(o.Dirs.Root, 0) })
	o.Log = slog.New(slog.DiscardHandler)
	if name, err := embedded.ChooseSnapshotter(o); name != "overlayfs" || err != nil {
		t.Errorf("%q, %v", name, err)
	}
}

// TestOnOverlay puts the root directory where CI containers have it: on an overlay, which cannot
// have another overlay on it, and on another file system than the program, which therefore cannot
// be hard-linked.
func TestOnOverlay(t *testing.T) {
	o := options(t)
	layers := t.TempDir()
	for _, dir := range []string{o.Dirs.Root, layers + "/lower", layers + "/upper", layers + "/work"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	opts := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", layers)
	if err := syscall.Mount("overlay", o.Dirs.Root, "overlay", 0, opts); err != nil {
		t.Skip("no overlay can be mounted here either:", err)
	}
	t.Cleanup(func() {
		eventually(t, "the daemon ends", func() bool { return !embedded.Running(o.Dirs) })
		eventually(t, "nothing uses the overlay", func() bool { return syscall.Unmount(o.Dirs.Root, 0) == nil })
	})
	l := ensure(t, o)
	if l.Snapshotter() != "native" {
		t.Errorf("snapshotter %q", l.Snapshotter())
	}
	ctx, c := dial(t, l)
	if _, err := c.SnapshotService(l.Snapshotter()).Prepare(ctx, "first", ""); err != nil {
		t.Error(err)
	}
	before := shimIsProgram(t, o.Dirs)
	l.Close()
	eventually(t, "the daemon ends", func() bool { return !embedded.Running(o.Dirs) })
	ensure(t, o).Close()
	if !os.SameFile(before, shimIsProgram(t, o.Dirs)) {
		t.Error("the shim was copied again")
	}
}

func TestShimLinkIsRefreshed(t *testing.T) {
	o := options(t)
	if err := os.MkdirAll(filepath.Dir(o.Dirs.Embedded().Shim()), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(o.Dirs.Embedded().Shim(), []byte("an older podrun"), 0o755); err != nil {
		t.Fatal(err)
	}
	ensure(t, o).Close()
	shimIsProgram(t, o.Dirs)
}

func shimIsProgram(t *testing.T, d layout.Dirs) os.FileInfo {
	t.Helper()
	want, err := embedded.ShimProgram()
	if err != nil {
		t.Fatal(err)
	}
	if want == nil || os.Getenv(ownShimOff) != "" {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		if want, err = os.ReadFile(exe); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(d.Embedded().Shim()); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the shim has %d bytes, %v; the program has %d", len(got), err, len(want))
	}
	st, err := os.Stat(d.Embedded().Shim())
	if err != nil || st.Mode().Perm()&0o100 == 0 {
		t.Fatalf("shim %v, %v; want it executable", st, err)
	}
	return st
}
