package cp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

// process is a Runtime with one container, whose root directory is a directory of the test.
type process struct {
	root    string
	pid     int
	restart bool // the process is another one each time
}

func (p *process) InspectContainers(context.Context, pod.Key, []string) ([]pod.Container, error) {
	one := pod.Container{ID: "id", State: pod.Running, PID: p.pid}
	if p.pid == 0 {
		one.State = pod.Exited
	}
	if p.restart {
		p.pid = os.Getpid()
	}
	return []pod.Container{one}, nil
}

// WorkingDir returns a directory in which the process is only if it was started there.
func (p *process) WorkingDir(context.Context, string) (string, error) { return "/work", nil }

// start starts a process that sleeps in a root directory with what is needed for that alone.
func start(t *testing.T, change func(a *syscall.SysProcAttr)) *process {
	t.Helper()
	return startBy(t, change, (*exec.Cmd).Start)
}

// startBy is start with a function of its own that starts the process.
func startBy(t *testing.T, change func(a *syscall.SysProcAttr), by func(*exec.Cmd) error) *process {
	t.Helper()
	p := &process{root: t.TempDir()}
	must(t, os.Chmod(p.root, 0o755))
	must(t, os.MkdirAll(filepath.Join(p.root, "work/sub"), 0o755))
	// Written by another process: what this one writes is busy while a test beside it starts a process.
	if out, err := exec.Command("cp", "/bin/busybox", filepath.Join(p.root, "sleep")).CombinedOutput(); err != nil {
		t.Fatalf("busybox-static is needed: %v: %s", err, out)
	}
	c := exec.Command("/sleep", "1000")
	c.SysProcAttr = &syscall.SysProcAttr{Chroot: p.root}
	c.Dir = "/" // it has left its working directory
	if change != nil {
		change(c.SysProcAttr)
	}
	must(t, by(c))
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	p.pid = c.Process.Pid
	return p
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// copy runs the command and returns its warnings.
func (p *process) copy(t *testing.T, from, to string) (string, error) {
	t.Helper()
	return p.copyAs(t.Context(), from, to, true)
}

func (p *process) copyAs(ctx context.Context, from, to string, preserve bool) (string, error) {
	source, target, err := Pair(from, to)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	c := Copier{Runtime: p, ErrOut: &out, Preserve: preserve}
	err = c.Copy(ctx, Instance{Key: pod.Key{Namespace: "default", Name: "web"}, Container: "c", ID: "id"}, source, target)
	return out.String(), err
}

// tree lists what is in a directory, with modes, owners and content.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var lines []string
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		st := info.Sys().(*syscall.Stat_t)
		line := fmt.Sprintf("%q %s %d:%d", name, info.Mode(), st.Uid, st.Gid)
		switch {
		case info.Mode().IsRegular():
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += " " + string(text)
		case info.Mode()&os.ModeSymlink != 0:
			leads, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line += " -> " + leads
		}
		lines = append(lines, line)
		return nil
	}))
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// source makes a directory to copy.
func source(t *testing.T) string {
	dir := filepath.Join(t.TempDir(), "src")
	must(t, os.MkdirAll(filepath.Join(dir, "d/empty"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "a"), []byte("A"), 0o640))
	must(t, os.WriteFile(filepath.Join(dir, "d/\n\x1b[31m"), []byte("B"), 0o755))
	must(t, os.Chmod(filepath.Join(dir, "a"), 0o640))
	must(t, os.Chmod(filepath.Join(dir, "d"), 0o711))
	must(t, os.Chown(filepath.Join(dir, "a"), 33, 34))
	return dir
}

func TestThereAndBack(t *testing.T) {
	t.Parallel()
	p, from := start(t, nil), source(t)
	want := tree(t, from)
	must(t, os.Mkdir(filepath.Join(p.root, "work/dot"), 0o755))
	if warned, err := p.copy(t, from+"/.", "web:/work/dot"); err != nil || warned != "" {
		t.Fatalf("%q, %v", warned, err)
	}
	for _, to := range []string{"/work/new", "/work", "sub/", "/work/sub/../twice", "/work/slash/"} {
		if warned, err := p.copy(t, from, "web:"+to); err != nil || warned != "" {
			t.Fatalf("%s: %q, %v", to, warned, err)
		}
	}
	for _, at := range []string{"new", "src", "sub/src", "twice", "slash", "dot"} {
		if got := tree(t, filepath.Join(p.root, "work", at)); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", at, got, want)
		}
	}
	back := filepath.Join(t.TempDir(), "x/y")
	for range 2 { // the second time all of it is there
		if warned, err := p.copy(t, "web:/work/new", back); err != nil || warned != "" {
			t.Fatalf("%q, %v", warned, err)
		}
		if got := tree(t, back); got != strings.ReplaceAll(want, "33:34", "0:0") {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
}

func TestFileNames(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	here := t.TempDir()
	must(t, os.WriteFile(filepath.Join(here, "f"), []byte("new"), 0o600))
	must(t, os.WriteFile(filepath.Join(p.root, "work/old"), []byte("old"), 0o600))
	must(t, os.Symlink("/work", filepath.Join(p.root, "link")))
	for _, tt := range []struct{ from, to, made, failure string }{
		{here + "/f", "web:/work", "work/f", ""},
		{here + "/f", "web:/work/g", "work/g", ""},
		{here + "/f", "web:/work/old", "work/old", ""},
		{here + "/f", "web:/link/h", "work/h", ""},
		{here + "/f", "default/web:/../../../i", "i", ""},
		{here + "/f", "web:/none/g", "", "web:/none: no such file or directory"},
		{here + "/f", "web:/none/", "", "web:/none/: no such file or directory"},
		{here + "/f", "web:/work/old/", "", "web:/work/old/: not a directory"},
		{here + "/none", "web:/work", "", here + "/none: no such file or directory"},
		{"web:/none", here, "", "web:/none: no such file or directory"},
		{"web:/work/old", here + "/none/", "", "is not a directory"},
		{"/dev/null", "web:/work/null", "", "/dev/null is a device"},
		{here, "web:/work/old", "", "web:/work/old: not a directory"},
	} {
		warned, err := p.copy(t, tt.from, tt.to)
		if tt.failure != "" {
			if err == nil || !strings.Contains(err.Error()+warned, tt.failure) {
				t.Errorf("%s %s: %q, %v", tt.from, tt.to, warned, err)
			}
			continue
		}
		text, read := os.ReadFile(filepath.Join(p.root, tt.made))
		if err != nil || read != nil || string(text) != "new" {
			t.Errorf("%s %s: %q, %v, %v", tt.from, tt.to, text, err, read)
		}
	}
}

// TestHostileFiles: what is in a container leads nowhere else on this machine.
func TestHostileFiles(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	outside, here := t.TempDir(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "f"), []byte("untouched"), 0o600))
	before := tree(t, outside)
	bad := filepath.Join(p.root, "work/bad")
	must(t, os.Mkdir(bad, 0o755))
	must(t, os.Symlink(outside, filepath.Join(bad, "dir")))
	must(t, os.Symlink(filepath.Join(outside, "f"), filepath.Join(bad, "file")))
	must(t, os.Symlink("/proc/self/root/etc", filepath.Join(bad, "magic")))
	must(t, unix.Mkfifo(filepath.Join(bad, "fifo"), 0o666))
	must(t, unix.Mknod(filepath.Join(bad, "full"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 7))))
	must(t, os.WriteFile(filepath.Join(bad, "good"), []byte("good"), 0o4755))

	// Out: links and devices are left out, and lead nowhere when they are named.
	warned, err := p.copy(t, "web:/work/bad", here)
	if got := tree(t, here); err != nil || got != `"good" -rwxr-xr-x 0:0 good` || strings.Count(warned, "skipping") != 5 {
		t.Errorf("%.300q\n%s%v", got, warned, err)
	}
	for _, path := range []string{"dir", "dir/f", "file", "magic", "fifo", "full"} {
		if _, err := p.copy(t, "web:/work/bad/"+path, here); err == nil {
			t.Errorf("%s is copied", path)
		}
	}
	// Into: a link is replaced, not followed; a device or a FIFO is not written to.
	from := filepath.Join(here, "good")
	for _, path := range []string{"dir/f", "fifo", "full"} {
		if _, err := p.copy(t, from, "web:/work/bad/"+path); err == nil {
			t.Errorf("%s is written", path)
		}
	}
	if _, err := p.copy(t, from, "web:/work/bad/file"); err != nil {
		t.Error(err)
	}
	if info, err := os.Lstat(filepath.Join(bad, "file")); err != nil || !info.Mode().IsRegular() {
		t.Errorf("%v, %v", info, err)
	}
	if got := tree(t, outside); got != before {
		t.Errorf("outside: %s", got)
	}
	// A link that is here already is not followed either.
	must(t, os.Symlink(outside, filepath.Join(here, "sub")))
	must(t, os.MkdirAll(filepath.Join(p.root, "work/more/sub"), 0o755))
	must(t, os.WriteFile(filepath.Join(p.root, "work/more/sub/f"), []byte("bad"), 0o644))
	if warned, err := p.copy(t, "web:/work/more", here); err == nil || !strings.Contains(warned, "sub is not a directory") {
		t.Errorf("%q, %v", warned, err)
	}
	if got := tree(t, outside); got != before {
		t.Errorf("outside: %s", got)
	}
}

// TestSwapped: a directory becomes a link to another one again and again while it is copied.
func TestSwapped(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	outside, here := t.TempDir(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600))
	work := filepath.Join(p.root, "work")
	must(t, os.Mkdir(filepath.Join(work, "sub/d"), 0o755))
	must(t, os.Symlink(outside, filepath.Join(work, "link")))
	must(t, os.MkdirAll(filepath.Join(here, "sub/d"), 0o755))
	must(t, os.WriteFile(filepath.Join(here, "sub/d/mine"), nil, 0o600))
	swapping := exchange(filepath.Join(work, "sub/d"), filepath.Join(work, "link"))
	for range 300 {
		_, _ = p.copy(t, "web:/work/sub", filepath.Join(here, "out"))
		_, _ = p.copy(t, filepath.Join(here, "sub"), "web:/work")
	}
	swapping()
	if _, err := os.Lstat(filepath.Join(here, "out/d/secret")); err == nil {
		t.Error("a file from outside the container was copied")
	}
	if got := tree(t, outside); got != `"secret" -rw------- 0:0 secret` {
		t.Errorf("outside: %s", got)
	}
}

// ownUsers gives a process a user namespace, as hostUsers: false does.
func ownUsers(a *syscall.SysProcAttr) {
	a.Cloneflags = syscall.CLONE_NEWUSER
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 70000, Size: 100}}
	a.UidMappings, a.GidMappings, a.GidMappingsEnableSetgroups = ids, ids, true
	a.Credential = &syscall.Credential{}
}

// TestOwners: files in a container belong to those whom tar in the container would give them.
func TestOwners(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change   func(a *syscall.SysProcAttr)
		preserve bool
		a, d     string
	}{
		"root":                {nil, true, "-rw-r----- 33:34", "drwx--x--x 0:0"},
		"root, not preserved": {nil, false, "-rw-r----- 0:0", "drwx--x--x 0:0"},
		"another user":        {func(a *syscall.SysProcAttr) { a.Credential = &syscall.Credential{Uid: 70000, Gid: 70000} }, true, "-rw-r----- 70000:70000", "drwx--x--x 70000:70000"},
		"a user namespace":    {ownUsers, true, "-rw-r----- 70033:70034", "drwx--x--x 70000:70000"},
		"its root, not kept":  {ownUsers, false, "-rw-r----- 70000:70000", "drwx--x--x 70000:70000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, from := start(t, tt.change), source(t)
			must(t, os.Chown(filepath.Join(p.root, "work"), 70000, 70000))
			must(t, os.Symlink("nowhere", filepath.Join(from, "l")))
			if warned, err := p.copyAs(t.Context(), from, "web:/work/x", tt.preserve); err != nil || warned != "" {
				t.Fatalf("%q, %v", warned, err)
			}
			got := tree(t, filepath.Join(p.root, "work/x"))
			owner := tt.d[len("drwx--x--x "):]
			for _, line := range []string{`"a" ` + tt.a + " A", `"d" ` + tt.d, `"l" Lrwxrwxrwx ` + owner + " -> nowhere"} {
				if !strings.Contains(got, line) {
					t.Errorf("%q is missing:\n%s", line, got)
				}
			}
		})
	}
	// The thread that was another user is not used again.
	for range 100 {
		var st unix.Stat_t
		path := filepath.Join(t.TempDir(), "f")
		must(t, os.WriteFile(path, nil, 0o600))
		must(t, unix.Stat(path, &st))
		if st.Uid != 0 {
			t.Fatalf("a file belongs to %d", st.Uid)
		}
	}
}

// TestNothingHalf: a copy that is called off leaves what was there, and nothing else.
func TestNothingHalf(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	here := t.TempDir()
	must(t, os.WriteFile(filepath.Join(here, "f"), []byte("new"), 0o600))
	must(t, os.WriteFile(filepath.Join(p.root, "work/f"), []byte("old"), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	c := &container{Instance: Instance{Key: pod.Key{Name: "web"}}}
	var err error
	c.root, err = os.OpenFile(p.root, unix.O_PATH|unix.O_DIRECTORY, 0)
	must(t, err)
	defer c.root.Close()
	w, err := c.owner.write()
	must(t, err)
	defer w.stop()
	one := &transfer{container: c, ctx: ctx, errOut: os.Stderr, writer: w}
	dir, err := one.openDirectory("/work")
	must(t, err)
	defer dir.Close()
	e, err := named(filepath.Join(here, "f"))
	must(t, err)
	defer e.Close()
	cancel()
	if err := one.fileInto(e, target{dir, "f", "/work/f"}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if got := tree(t, filepath.Join(p.root, "work")); !strings.HasPrefix(got, `"f" -rw------- 0:0 old`) || strings.Contains(got, "podrun-cp") {
		t.Errorf("%s", got)
	}
	f, err := one.resolve("/work/f")
	must(t, err)
	defer f.Close()
	root, err := os.OpenRoot(here)
	must(t, err)
	defer root.Close()
	if err := one.fileOut(f, "/work/f", root, "f"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if got := tree(t, here); got != `"f" -rw------- 0:0 new` {
		t.Errorf("%s", got)
	}
}

func TestNotRunning(t *testing.T) {
	t.Parallel()
	if _, err := (&process{}).copy(t, "web:/x", t.TempDir()); err == nil || err.Error() != `container "c" in pod "web" is not running` {
		t.Errorf("%v", err)
	}
	p := start(t, nil)
	p.restart = true
	if _, err := p.copy(t, "web:/sleep", t.TempDir()); err == nil || err.Error() != `container "c" in pod "web" is not running any more` {
		t.Errorf("%v", err)
	}
}

func TestFileSpecs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"f": "{  f}", "/a:b": "{  /a:b}", "./a:b": "{  ./a:b}", "../x": "{  ../x}", "web:f": "{ web f}", "web:/a:b": "{ web /a:b}",
		"batch/web:/f": "{batch web /f}", ":f": "must be", "web:": "no path", "a/b/c:f": "must be", "/:f": "{  /:f}", "a/:f": "must be", "": "empty",
	} {
		spec, err := ParseFileSpec(text)
		got := fmt.Sprint(spec)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", strconv.Quote(text), got, want)
		}
	}
	if _, _, err := Pair("a", "b"); err == nil || !strings.Contains(err.Error(), "neither") {
		t.Errorf("%v", err)
	}
	if _, _, err := Pair("p:a", "q:b"); err == nil || !strings.Contains(err.Error(), "both") {
		t.Errorf("%v", err)
	}
}

// TestBounds: a file that has no size is not copied for ever.
func TestBounds(t *testing.T) {
	t.Parallel()
	one := &transfer{ctx: t.Context()}
	for size, want := range map[int64]string{0: "more than 16 MiB", smallest - 1: "more than 16 MiB"} {
		var n counter
		err := one.bounded(&n, endless{}, size)
		if !strings.Contains(fmt.Sprint(err), want) || int64(n) > max(size, smallest+1) {
			t.Errorf("%d: %d bytes, %v", size, n, err)
		}
	}
}

// TestHoles: of a large file the data is copied and the holes are not, and nothing that it grew by.
func TestHoles(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	here, name := t.TempDir(), filepath.Join(p.root, "work/big")
	f, err := os.Create(name)
	must(t, err)
	defer f.Close()
	const size = 256 << 20
	for at, text := range map[int64]string{0: "first", size / 2: "middle", size - 4: "last"} {
		_, err := f.WriteAt([]byte(text), at)
		must(t, err)
	}
	if _, err := p.copy(t, "web:/work/big", filepath.Join(here, "big")); err != nil {
		t.Fatal(err)
	}
	got, err := os.Open(filepath.Join(here, "big"))
	must(t, err)
	defer got.Close()
	var st unix.Stat_t
	must(t, unix.Fstat(int(got.Fd()), &st))
	if st.Size != size || st.Blocks > 1000 {
		t.Errorf("%d bytes in %d blocks", st.Size, st.Blocks)
	}
	for at, want := range map[int64]string{0: "first", 5: "\x00", size / 2: "middle", size - 4: "last"} {
		text := make([]byte, len(want))
		if _, err := got.ReadAt(text, at); err != nil || string(text) != want {
			t.Errorf("at %d: %q, %v", at, text, err)
		}
	}
	one := &transfer{ctx: t.Context()}
	out, err := os.Create(filepath.Join(here, "grown"))
	must(t, err)
	defer out.Close()
	must(t, one.data(out, f, size/2+3))
	if err := unix.Fstat(int(out.Fd()), &st); err != nil || st.Size != size/2+3 {
		t.Errorf("of a file that grew: %d bytes, %v", st.Size, err)
	}
	if err := one.data(out, f, size+1); err == nil || !strings.Contains(err.Error(), "shorter") {
		t.Errorf("of a file that was truncated: %v", err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// TestHangs: a copy of what does not answer ends all the same when it is called off, and nothing waits for the other end
// of a FIFO.
func TestHangs(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	here := t.TempDir()
	fifo := filepath.Join(here, "fifo")
	must(t, unix.Mkfifo(fifo, 0o600))
	for from, to := range map[string]string{"web:/sleep": fifo, fifo: "web:/work/f", "web:/proc": here, "web:/kmsg": here} {
		if _, err := p.copy(t, from, to); err == nil {
			t.Errorf("%s is copied to %s", from, to)
		}
	}
	must(t, os.Mkdir(filepath.Join(here, "d"), 0o700))
	must(t, unix.Mkfifo(filepath.Join(here, "d/fifo"), 0o600))
	if warned, err := p.copy(t, filepath.Join(here, "d"), "web:/work/d"); err != nil || !strings.Contains(warned, "it is a FIFO") {
		t.Errorf("%q, %v", warned, err)
	}
	if _, err := p.copy(t, "web:/sleep", "/dev/stdout"); err == nil {
		t.Error("/dev/stdout is replaced")
	}
	hangs := &hanging{process: p, more: make(chan struct{})}
	defer close(hangs.more)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	c := Copier{Runtime: hangs, ErrOut: &bytes.Buffer{}}
	if err := c.Copy(ctx, Instance{ID: "id"}, FileSpec{Pod: "web", Path: "/work"}, FileSpec{Path: here}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// hanging answers twice, and then not any more.
type hanging struct {
	*process
	n    int
	more chan struct{}
}

func (h *hanging) InspectContainers(ctx context.Context, key pod.Key, ids []string) ([]pod.Container, error) {
	if h.n++; h.n > 2 {
		<-h.more
	}
	return h.process.InspectContainers(ctx, key, ids)
}

// TestKernelsFiles: what is read of proc and sysfs is not a file's content, whatever leads there.
func TestKernelsFiles(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/proc/kmsg", "/proc", "/sys/kernel", "/proc/self/status"} {
		e, err := named(path)
		must(t, err)
		if !e.ofTheKernel() || notCopied(e) == "" {
			t.Errorf("%s is copied", path)
		}
		must(t, e.Close())
	}
	for _, path := range []string{"/etc/passwd", t.TempDir(), "/dev/shm"} {
		e, err := named(path)
		must(t, err)
		if notCopied(e) != "" {
			t.Errorf("%s is not copied", path)
		}
		must(t, e.Close())
	}
}

// TestSourceSwapped: somebody else may write the directory that is copied into a container, another container for example.
// A directory there becomes a link again and again.
func TestSourceSwapped(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	outside, here := t.TempDir(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600))
	must(t, os.MkdirAll(filepath.Join(here, "src/d"), 0o755))
	must(t, os.WriteFile(filepath.Join(here, "src/d/secret"), []byte("mine"), 0o600))
	must(t, os.Symlink(outside, filepath.Join(here, "src/link")))
	swapping := exchange(filepath.Join(here, "src/d"), filepath.Join(here, "src/link"))
	for i := range 300 {
		_, _ = p.copy(t, filepath.Join(here, "src"), fmt.Sprintf("web:/work/%d", i))
	}
	swapping()
	must(t, filepath.WalkDir(filepath.Join(p.root, "work"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != "mine" {
			t.Errorf("%s: %q, %v", path, text, err)
		}
		return nil
	}))
}

// exchange exchanges two files again and again until it is told to stop.
func exchange(a, b string) (stop func()) {
	ended, end := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// TestRightsOfTheProcess: cp lets nobody write where the container's process may not, and gives it nothing that was
// another's: the files of another user in a directory that it owns, whatever names they have. Root without capabilities
// is as any other user, and so is one that has made a user namespace of its own, in which it is root with all of them.
func TestRightsOfTheProcess(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		uid    int
		change func(a *syscall.SysProcAttr)
		by     func(*exec.Cmd) error
	}{
		"another user": {1000, func(a *syscall.SysProcAttr) {
			a.Credential = &syscall.Credential{Uid: 1000, Gid: 1000}
		}, (*exec.Cmd).Start},
		"its own user namespace": {1000, func(a *syscall.SysProcAttr) {
			a.Cloneflags, a.Credential = syscall.CLONE_NEWUSER, &syscall.Credential{NoSetGroups: true}
			a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: 1000, Size: 1}}
			a.GidMappings = a.UidMappings
		}, (*exec.Cmd).Start},
		"root without capabilities": {0, nil, startWithoutCapabilities},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rightsOf(t, startBy(t, tt.change, tt.by), tt.uid)
		})
	}
}

// startWithoutCapabilities starts a process that can never have any.
func startWithoutCapabilities(c *exec.Cmd) error {
	return sys.OnOwnThread(func() error {
		for one := uintptr(0); unix.Prctl(unix.PR_CAPBSET_DROP, one, 0, 0, 0) == nil; one++ {
		}
		return c.Start()
	})
}

func rightsOf(t *testing.T, p *process, uid int) {
	const another = 4000
	here, work := t.TempDir(), filepath.Join(p.root, "work")
	must(t, os.MkdirAll(filepath.Join(here, "d"), 0o755))
	must(t, os.WriteFile(filepath.Join(here, "d/f"), []byte("f"), 0o600))
	must(t, os.Symlink("x", filepath.Join(here, "d/l")))
	must(t, os.MkdirAll(filepath.Join(work, "hidden/open"), 0o700))
	must(t, os.Chmod(filepath.Join(work, "hidden/open"), 0o777))
	must(t, os.WriteFile(filepath.Join(work, "secret"), []byte("untouched"), 0o600))
	for _, dir := range []string{"/", "work", "work/hidden", "work/secret"} {
		must(t, os.Chown(filepath.Join(p.root, dir), another, another))
	}
	must(t, os.Chown(filepath.Join(work, "sub"), uid, uid))
	must(t, os.Symlink("/work", filepath.Join(work, "sub/link")))
	must(t, os.WriteFile(filepath.Join(here, "secret"), []byte("new"), 0o600))
	for from, targets := range map[string][]string{
		"d": {"web:/work", "web:/work/new", "web:/new", "web:/work/hidden/open", "web:/work/sub/link"}, "secret": {"web:/work", "web:/work/sub/link/secret"},
	} {
		for _, to := range targets {
			if _, err := p.copy(t, filepath.Join(here, from), to); err == nil || !strings.Contains(err.Error(), "permission denied") {
				t.Errorf("%s to %s: %v", from, to, err)
			}
		}
	}
	if text, err := os.ReadFile(filepath.Join(work, "secret")); err != nil || string(text) != "untouched" {
		t.Errorf("%q, %v", text, err)
	}
	must(t, os.Mkdir(filepath.Join(work, "sub/victim"), 0o700))
	must(t, os.Chown(filepath.Join(work, "sub/victim"), another, another))
	must(t, os.Mkdir(filepath.Join(work, "sub/d"), 0o700))
	must(t, os.Chown(filepath.Join(work, "sub/d"), uid, uid))
	swapping := exchange(filepath.Join(work, "sub/victim"), filepath.Join(work, "sub/d"))
	for i := range 200 {
		_, _ = p.copy(t, filepath.Join(here, "d"), "web:/work/sub")
		_, _ = p.copy(t, filepath.Join(here, "d"), fmt.Sprintf("web:/work/sub/%d", i))
	}
	swapping()
	theirs := 0
	for _, name := range []string{"victim", "d"} {
		var st unix.Stat_t
		must(t, unix.Stat(filepath.Join(work, "sub", name), &st))
		if st.Uid != another {
			theirs++
			continue
		}
		if st.Mode&0o777 != 0o700 {
			t.Errorf("another user's directory has mode %o", st.Mode)
		}
		if got := tree(t, filepath.Join(work, "sub", name)); got != "" {
			t.Errorf("another user's directory has got %s", got)
		}
	}
	if theirs != 1 {
		t.Errorf("%d of the two directories are the container's user's", theirs)
	}
	owner := fmt.Sprintf("%d:%d", uid, uid)
	if got := tree(t, filepath.Join(work, "sub/199")); !strings.Contains(got, `"f" -rw------- `+owner+` f`) || !strings.Contains(got, `"l" Lrwxrwxrwx `+owner+` -> x`) {
		t.Errorf("%s", got)
	}
}

// TestRootOfTheNamespace: root in a user namespace may write where any of its users may, as in directories that hide
// from others, and nowhere else.
func TestRootOfTheNamespace(t *testing.T) {
	t.Parallel()
	p := start(t, ownUsers)
	here, work := t.TempDir(), filepath.Join(p.root, "work")
	must(t, os.WriteFile(filepath.Join(here, "f"), []byte("f"), 0o600))
	for dir, owner := range map[string]int{"work": 70000, "work/theirs": 70033, "work/theirs/deep": 70033, "work/another": 4000} {
		must(t, os.MkdirAll(filepath.Join(p.root, dir), 0o700))
		must(t, os.Chmod(filepath.Join(p.root, dir), 0o700))
		must(t, os.Chown(filepath.Join(p.root, dir), owner, owner))
	}
	for _, to := range []string{"theirs", "theirs/deep", "theirs/deep/g"} {
		if _, err := p.copy(t, filepath.Join(here, "f"), "web:/work/"+to); err != nil {
			t.Errorf("%s: %v", to, err)
		}
	}
	if got := tree(t, filepath.Join(work, "theirs/deep")); got != "\"f\" -rw------- 70000:70000 f\n\"g\" -rw------- 70000:70000 f" {
		t.Errorf("%s", got)
	}
	if _, err := p.copy(t, filepath.Join(here, "f"), "web:/work/another"); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("%v", err)
	}
}
