package owner

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile"
)

// twoProcesses returns the locks of two processes in one run directory.
func twoProcesses(t *testing.T) (a, b *Locks) {
	dirs := layout.Dirs{Run: t.TempDir()}
	a, b = NewLocks(dirs, Serve), NewLocks(dirs, Once)
	// A process that nobody asks any more lives on: a file that nothing refers to is closed, and its lock free.
	t.Cleanup(func() { runtime.KeepAlive(a); runtime.KeepAlive(b) })
	return a, b
}

// wantLock tries to acquire the pod. holder is what the returned holder must contain; "": the pod
// must be acquired.
func wantLock(t *testing.T, l *Locks, key pod.Key, holder string, wantFresh bool) {
	t.Helper()
	other, fresh, err := l.Acquire(key)
	if err != nil || (other == "") != (holder == "") || !strings.Contains(other, holder) || fresh != wantFresh {
		t.Errorf("got %q, fresh %t, %v; want %q, fresh %t", other, fresh, err, holder, wantFresh)
	}
}

var lockedPod = pod.Key{Namespace: "default", Name: "web-n"}

func TestPodLock(t *testing.T) {
	t.Parallel()
	a, b := twoProcesses(t)
	asked := 0
	b.fresh = func() error { asked++; return nil }
	wantLock(t, a, lockedPod, "", true)
	wantLock(t, a, lockedPod, "", false)
	wantLock(t, b, lockedPod, fmt.Sprintf("podrun serve (process %d) since ", os.Getpid()), false)
	wantLock(t, b, pod.Key{Namespace: "default", Name: "other"}, "", true)
	b.Release(lockedPod) // it has not got it
	wantLock(t, b, lockedPod, "podrun serve", false)
	a.Release(lockedPod)
	if _, err := os.Lstat(a.dirs.PodLock(lockedPod)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its file is there: %v", err)
	}
	wantLock(t, b, lockedPod, "", true)
	wantLock(t, a, lockedPod, "podrun once", false)
	a.Release(lockedPod)
	if asked != 2 {
		t.Errorf("looked anew %d times", asked)
	}
}

// wantKept checks that Kept reports whether a process owns the pod.
func wantKept(t *testing.T, dirs layout.Dirs, key pod.Key, want, wantKnown bool) {
	t.Helper()
	if kept, known := (Reader{dirs}).Kept(key); kept != want || known != wantKnown {
		t.Errorf("kept %t, known %t; want %t, %t", kept, known, want, wantKnown)
	}
}

// TestKept: readers see whether a process owns a pod, and do not block any process meanwhile.
func TestKept(t *testing.T) {
	t.Parallel()
	a, b := twoProcesses(t)
	wantKept(t, a.dirs, lockedPod, false, false)
	wantLock(t, a, lockedPod, "", true)
	wantKept(t, a.dirs, lockedPod, true, true)
	wantLock(t, b, lockedPod, "podrun serve", false)
	wantKept(t, a.dirs, lockedPod, true, true)
	a.Release(lockedPod)
	wantKept(t, a.dirs, lockedPod, false, true)
	if err := os.WriteFile(a.dirs.PodLock(lockedPod), []byte(`{"command":"once","pid":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	wantKept(t, a.dirs, lockedPod, false, true) // left by a process that was killed
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				(Reader{a.dirs}).Kept(lockedPod)
			}
		}
	}()
	for range 300 {
		wantLock(t, b, lockedPod, "", true)
		wantKept(t, b.dirs, lockedPod, true, true)
		b.Release(lockedPod)
	}
	close(stop)
	<-stopped
}

// TestPodLockThatCannotLook: a pod is not acquired if its checkpoints cannot be scanned.
func TestPodLockThatCannotLook(t *testing.T) {
	t.Parallel()
	a, b := twoProcesses(t)
	no := errors.New("no")
	a.fresh = func() error { return no }
	if _, _, err := a.Acquire(lockedPod); !errors.Is(err, no) {
		t.Error(err)
	}
	wantLock(t, b, lockedPod, "", true)
	a.fresh = func() error { return nil }
	wantLock(t, a, lockedPod, "podrun once", false)
}

// TestPodLockFileThatWasRemoved: a process that opened the file before its owner removed it does
// not own the pod.
func TestPodLockFileThatWasRemoved(t *testing.T) {
	t.Parallel()
	a, b := twoProcesses(t)
	for range 30 {
		got := make(chan *Locks)
		for _, l := range []*Locks{a, b} {
			go func() {
				for {
					if other, _, err := l.Acquire(lockedPod); err != nil || other == "" {
						if err != nil {
							t.Error(err)
						}
						got <- l
						return
					}
				}
			}()
		}
		first := <-got
		select {
		case <-got:
			t.Fatal("both have it")
		case <-time.After(100 * time.Microsecond):
		}
		first.Release(lockedPod)
		(<-got).Release(lockedPod)
	}
}

func TestAcquireAllOrNone(t *testing.T) {
	t.Parallel()
	a, b := twoProcesses(t)
	key := func(name string) pod.Key { return pod.Key{Namespace: "default", Name: name} }
	wantLock(t, a, key("c"), "", true)
	wantLock(t, b, key("a"), "", true)
	err := b.AcquireAll(t.Context(), key("a"), key("b"), key("c"), key("d"))
	owned := (*OwnedError)(nil)
	if !errors.As(err, &owned) || owned.Key != key("c") || !strings.Contains(err.Error(), "pod default/c is run by podrun serve (process") {
		t.Errorf("got %v", err)
	}
	wantLock(t, a, key("b"), "", true)
	wantLock(t, a, key("d"), "", true)
	wantLock(t, a, key("a"), "podrun once", false) // it had that before
}

// TestOddPodLocks: neither the pod's name nor the contents of the file matter.
func TestOddPodLocks(t *testing.T) {
	t.Parallel()
	a, b := twoProcesses(t)
	for _, key := range []pod.Key{{Namespace: "a", Name: "b.c-d"}, {Namespace: "a-b", Name: "c"}, {Namespace: "a", Name: "b-c"}, {Namespace: "n", Name: strings.Repeat("x", 240)}} {
		wantLock(t, a, key, "", true)
		wantLock(t, b, key, "podrun serve", false)
		for _, text := range []string{"", "{", "\x00\xff", `{"command":7}`, strings.Repeat("x", 10000)} {
			if err := os.WriteFile(a.dirs.PodLock(key), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			wantLock(t, b, key, "another podrun", false)
		}
		a.Release(key)
		wantLock(t, b, key, "", true)
		wantLock(t, a, key, "podrun once", false)
	}
}

// TestPodLockOnFullDisk: the lock holds although its holder cannot be written.
func TestPodLockOnFullDisk(t *testing.T) {
	t.Parallel()
	a, b := twoProcesses(t)
	wantLock(t, a, lockedPod, "", true)
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	a.write(full)
	if err := os.Truncate(a.dirs.PodLock(lockedPod), 0); err != nil {
		t.Fatal(err)
	}
	wantLock(t, b, lockedPod, "another podrun", false)
}

// promptAcquire is Acquire, but must return soon.
func promptAcquire(t *testing.T, l *Locks, key pod.Key) (other string, fresh bool, err error) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		other, fresh, err = l.Acquire(key)
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("Acquire does not return")
	}
	return other, fresh, err
}

// TestPodLockThatIsNoFile: a lock path that is not a regular file with one link is an error of that
// pod, is not written to, and does not affect other pods.
func TestPodLockThatIsNoFile(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(path, victim string) error{
		"symbolic link": func(path, victim string) error { return os.Symlink(victim, path) },
		"dangling link": func(path, victim string) error { return os.Symlink(victim+".missing", path) },
		"hard link":     func(path, victim string) error { return os.Link(victim, path) },
		"directory":     func(path, _ string) error { return os.Mkdir(path, 0o700) },
		"FIFO":          func(path, _ string) error { return unix.Mkfifo(path, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, _ := twoProcesses(t)
			if err := os.MkdirAll(a.dirs.PodLocks(), 0o700); err != nil {
				t.Fatal(err)
			}
			path, victim := a.dirs.PodLock(lockedPod), filepath.Join(a.dirs.Run, "victim")
			if err := errors.Join(os.WriteFile(victim, []byte("keep"), 0o600), put(path, victim)); err != nil {
				t.Fatal(err)
			}
			failed := (*reconcile.LockError)(nil)
			if other, fresh, err := promptAcquire(t, a, lockedPod); !errors.As(err, &failed) || other != "" || fresh || failed.Key != lockedPod {
				t.Errorf("got %q, fresh %t, %v", other, fresh, err)
			}
			if text, err := os.ReadFile(victim); err != nil || string(text) != "keep" {
				t.Errorf("the victim is %q, %v", text, err)
			}
			if _, err := os.Lstat(victim + ".missing"); err == nil {
				t.Error("the link's target was made")
			}
			wantLock(t, a, pod.Key{Namespace: "default", Name: "other"}, "", true)
			if err := a.Sweep(); err == nil {
				t.Error("swept as if it were a lock")
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			wantLock(t, a, lockedPod, "", true)
		})
	}
}

// TestPodLockThatHangs: a process that waits for one pod's lock can still acquire other pods.
func TestPodLockThatHangs(t *testing.T) {
	t.Parallel()
	a, _ := twoProcesses(t)
	hang, hangs := make(chan struct{}), make(chan struct{})
	a.fresh = sync.OnceValue(func() error { // the first one's
		close(hangs)
		<-hang
		return nil
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		wantLock(t, a, lockedPod, "", true)
	}()
	<-hangs
	a.fresh = func() error { return nil }
	other := pod.Key{Namespace: "default", Name: "other"}
	if holder, _, err := promptAcquire(t, a, other); holder != "" || err != nil {
		t.Errorf("got %q, %v", holder, err)
	}
	a.Release(other)
	close(hang)
	<-done
}

// TestPodLockThatWasTakenAway: an owner whose file has been removed owns the pod only if it can
// acquire it again, and must then inspect the pod.
func TestPodLockThatWasTakenAway(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(path string) error{
		"file":      os.Remove,
		"directory": func(path string) error { return os.RemoveAll(filepath.Dir(path)) },
		"replaced": func(path string) error {
			return errors.Join(os.Rename(path, path+".old"), os.WriteFile(path, nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := twoProcesses(t)
			for _, taken := range []bool{false, true} {
				wantLock(t, a, lockedPod, "", true)
				if err := remove(a.dirs.PodLock(lockedPod)); err != nil {
					t.Fatal(err)
				}
				if taken {
					wantLock(t, b, lockedPod, "", true)
					wantLock(t, a, lockedPod, "podrun once", false)
					a.Release(lockedPod) // it has not got it
					wantLock(t, b, lockedPod, "", false)
					b.Release(lockedPod)
				}
				wantLock(t, a, lockedPod, "", true)
				wantLock(t, b, lockedPod, "podrun serve", false)
				a.Release(lockedPod)
			}
		})
	}
}

// TestLostPodLock: an owner whose file has been replaced by something that is not a lock file does
// not own the pod any more.
func TestLostPodLock(t *testing.T) {
	t.Parallel()
	a, b := twoProcesses(t)
	wantLock(t, a, lockedPod, "", true)
	path := a.dirs.PodLock(lockedPod)
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, _, err := a.Acquire(lockedPod); err == nil {
			t.Error("it has it still")
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	wantLock(t, b, lockedPod, "", true)
	wantLock(t, a, lockedPod, "podrun once", false)
}

// killedLocks are the locks of the process that TestPodLockOfKilledProcess kills. They are not a
// local variable, because the garbage collector would close their files, and so unlock the pod,
// while the process waits to be killed.
var killedLocks *Locks

// TestPodLockOfKilledProcess: the lock of a killed process is free at once, although its children
// continue to run.
func TestPodLockOfKilledProcess(t *testing.T) {
	const envDir = "PODRUN_TEST_POD_LOCK"
	if dir := os.Getenv(envDir); dir != "" { // the process that is killed
		killedLocks = NewLocks(layout.Dirs{Run: dir}, Once)
		other, _, err := killedLocks.Acquire(lockedPod)
		child := exec.Command("sleep", "60")
		fmt.Printf("has it: %t %v\n", other == "" && err == nil && child.Start() == nil, err)
		fmt.Println(child.Process.Pid)
		time.Sleep(time.Hour) // where nothing is awaited the runtime ends the process as hung
	}
	t.Parallel()
	l := NewLocks(layout.Dirs{Run: t.TempDir()}, Serve)
	c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	c.Env = append(os.Environ(), envDir+"="+l.dirs.Run)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines, child := bufio.NewScanner(out), 0
	for child == 0 && lines.Scan() {
		if strings.HasPrefix(lines.Text(), "has it:") && lines.Text() != "has it: true <nil>" {
			t.Error(lines.Text())
		}
		_, _ = fmt.Sscanf(lines.Text(), "%d", &child)
	}
	if child == 0 {
		t.Fatal("it says nothing")
	}
	defer func() { _ = unix.Kill(child, unix.SIGKILL) }()
	wantLock(t, l, lockedPod, fmt.Sprintf("podrun once (process %d) since", c.Process.Pid), false)
	wantKept(t, l.dirs, lockedPod, true, true)
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	if err := unix.Kill(child, 0); err != nil {
		t.Fatal("its child has ended too", err)
	}
	wantKept(t, l.dirs, lockedPod, false, true)
	wantLock(t, l, lockedPod, "", true)
}
