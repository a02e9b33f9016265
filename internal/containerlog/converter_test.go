package containerlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/containerlog/cri"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/test"
)

var web = pod.Instance{ID: "i1", Key: pod.Key{Namespace: "default", Name: "web-node1"}, UID: "u1", Container: "app", Attempt: 2}

var must, eventually = test.Must, test.Eventually

// fixture is an instance's files in a temporary directory.
type fixture struct {
	t    testing.TB
	dirs layout.Dirs
	inst pod.Instance
	at   time.Time // when raw files were written to last; zero: when they were
}

func newFixture(t testing.TB) fixture {
	dir := t.TempDir()
	r := fixture{t: t, dirs: layout.Dirs{Root: dir + "/root", Run: dir + "/run", Log: dir + "/log"}, inst: web}
	must(t, os.MkdirAll(r.rawDir(), 0o755))
	for _, s := range streams {
		r.append(s, "")
	}
	return r
}

func (r fixture) rawDir() string {
	return r.dirs.Revision(r.inst.UID).RawLog(r.inst.Container, r.inst.ID)
}

func (r fixture) log() string {
	return r.dirs.ContainerLog(r.inst.Key, r.inst.UID, r.inst.Container, r.inst.Attempt)
}

// append does what the shim does.
func (r fixture) append(s cri.Stream, text string) {
	r.t.Helper()
	f, err := os.OpenFile(rawPath(r.rawDir(), s), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	must(r.t, err)
	_, err = f.WriteString(text)
	must(r.t, errors.Join(err, f.Close()))
}

// read returns what Read delivers.
func (r fixture) read(o cri.ReadOptions) (string, string) {
	r.t.Helper()
	var out, errOut bytes.Buffer
	must(r.t, cri.Read(context.Background(), r.log(), o, &out, &errOut))
	return out.String(), errOut.String()
}

// entries returns the log without its times.
func (r fixture) entries() string {
	r.t.Helper()
	b, err := os.ReadFile(r.log())
	must(r.t, err)
	var text strings.Builder
	for line := range strings.Lines(string(b)) {
		stamp, rest, _ := strings.Cut(line, " ")
		const format = "2006-01-02T15:04:05.000000000Z"
		if _, err := time.Parse(format, stamp); err != nil || len(stamp) != len(format) {
			r.t.Fatalf("bad time in %q", line)
		}
		text.WriteString(rest)
	}
	return text.String()
}

// FuzzSameBytesOut: a reader gets a container's output byte for byte, however it is split into
// writes and batches.
func FuzzSameBytesOut(f *testing.F) {
	f.Add([]byte("a\nb"), []byte("err\n"), uint64(1), uint16(3), uint16(0))
	f.Add(bytes.Repeat([]byte("0123456789"), 5000), []byte("\n\n"), uint64(2), uint16(20000), uint16(1))
	f.Add([]byte("2026-01-02T15:04:05.000000000Z stderr F fake\n"), []byte{}, uint64(3), uint16(1), uint16(0))
	f.Add([]byte("a\n2026-01-02T15:04:05.000000000Z stderr F fake\n"), []byte{}, uint64(3), uint16(1000), uint16(0))
	f.Add(bytes.Repeat([]byte("a line\n"), 300), bytes.Repeat([]byte("xyz"), 20000), uint64(4), uint16(500), uint16(900))
	f.Fuzz(func(t *testing.T, out, errOut []byte, seed uint64, most, size uint16) {
		r := newFixture(t)
		c, err := openConverter(r.dirs, r.inst, Rotation{Size: int64(size)})
		must(t, err)
		defer c.close()
		b, rest := newBuffers(), [2][]byte{out, errOut}
		random := rand.New(rand.NewPCG(seed, 0))
		least := max(len(out), len(errOut))/100 + 1 // a step costs system calls: at most 100 of them
		for len(rest[0])+len(rest[1]) > 0 {
			for s := range rest {
				n := min(random.IntN(int(most)+1)+least, len(rest[s]))
				r.append(cri.Stream(s), string(rest[s][:n]))
				rest[s] = rest[s][n:]
			}
			_, err := c.batch(b, false)
			must(t, err)
		}
		must(t, drain(context.Background(), c, true))
		if size%2 == 1 {
			must(t, cleanSegments(r.log(), 1<<30))
		}
		gotOut, gotErr := r.read(cri.ReadOptions{})
		if gotOut != string(out) || gotErr != string(errOut) {
			t.Errorf("got %.200q and %.200q", gotOut, gotErr)
		}
		all := 1 << 20
		if tailOut, tailErr := r.read(cri.ReadOptions{Tail: &all}); tailOut != gotOut || tailErr != gotErr {
			t.Errorf("reading backwards loses: %.200q and %.200q", tailOut, tailErr)
		}
	})
}

var errCut = errors.New("killed")

// cutDisk dies after so many steps: a byte written is one, any other change is one.
type cutDisk struct {
	realDisk
	left int
}

func (d *cutDisk) step() error {
	if d.left <= 0 {
		return errCut
	}
	d.left--
	return nil
}

func (d *cutDisk) WriteAt(f *os.File, b []byte, off int64) (int, error) {
	n := min(d.left, len(b))
	d.left -= n
	if m, err := f.WriteAt(b[:n], off); err != nil || n == len(b) {
		return m, err
	}
	return n, errCut
}

func (d *cutDisk) Truncate(f *os.File, size int64) error {
	if err := d.step(); err != nil {
		return err
	}
	return d.realDisk.Truncate(f, size)
}

func (d *cutDisk) Punch(path string, off, n int64) error {
	if err := d.step(); err != nil {
		return err
	}
	return d.realDisk.Punch(path, off, n)
}

func (d *cutDisk) Rename(from, to string) error {
	if err := d.step(); err != nil {
		return err
	}
	return d.realDisk.Rename(from, to)
}

func (d *cutDisk) Remove(path string) error {
	if err := d.step(); err != nil {
		return err
	}
	return d.realDisk.Remove(path)
}

// TestKillAnywhere: if the converter is killed after any byte written or any other change, the next
// process neither loses nor repeats output.
func TestKillAnywhere(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{0, 60} {
		killAnywhere(t, Rotation{Size: size})
	}
}

func killAnywhere(t *testing.T, rotation Rotation) {
	// life is one process: it converts what is there, then finishes. It may be killed.
	life := func(r fixture, d disk) error {
		c, err := openConverter(r.dirs, r.inst, rotation)
		if errors.Is(err, errRemoved) {
			return nil
		}
		must(t, err)
		defer c.close()
		c.disk = d
		b := newBuffers()
		if _, err := c.batch(b, false); errors.Is(err, errRemoved) {
			return nil
		} else if err != nil {
			return err
		}
		if err := drain(context.Background(), c, true); err != nil {
			return err
		}
		return c.remove()
	}
	first, then, errOut := "one\nt", "wo\n"+strings.Repeat("z", 50)+"\nno end", "error\n"
	for n, whole := 0, false; !whole; n++ {
		for _, cuts := range []int{1, 2} {
			r := newFixture(t)
			r.append(cri.Stdout, first)
			c, err := openConverter(r.dirs, r.inst, rotation)
			must(t, err)
			c.disk = &cutDisk{left: n}
			_, cut := c.batch(newBuffers(), false)
			c.close()
			r.append(cri.Stdout, then)
			r.append(cri.Stderr, errOut)
			for range cuts {
				whole = cut == nil && life(r, &cutDisk{left: n}) == nil
			}
			must(t, life(r, realDisk{}))
			if gotOut, gotErr := r.read(cri.ReadOptions{}); gotOut != first+then || gotErr != errOut {
				t.Fatalf("rotated at %d, cut %d times after %d steps: %q, %q", rotation.Size, cuts, n, gotOut, gotErr)
			}
			if left, err := os.ReadDir(r.rawDir()); err != nil || len(left) > 0 {
				t.Fatalf("cut after %d steps: %v left", n, left)
			}
		}
	}
}

func TestKilledWithMuchLeft(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	for i := range 30000 {
		fmt.Fprintf(&out, "line %d of a flood\n", i)
	}
	total := out.Len()
	for _, n := range []int{0, 1, 100, 300_000, 1_000_000, 1_300_000, 1_500_000} {
		r := newFixture(t)
		r.append(cri.Stdout, out.String())
		c, err := openConverter(r.dirs, r.inst, Rotation{})
		must(t, err)
		c.disk = &cutDisk{left: n}
		if err := drain(context.Background(), c, true); !errors.Is(err, errCut) {
			t.Errorf("of %d bytes, %d steps were enough: %v", total, n, err)
		}
		c.close()
		must(t, New(Options{Dirs: r.dirs, Log: quiet}).Finish(context.Background(), r.inst))
		if got, _ := r.read(cri.ReadOptions{}); got != out.String() {
			t.Errorf("cut after %d steps: %d bytes of %d", n, len(got), total)
		}
	}
}

// fullDisk refuses after so many bytes, as often as it is asked.
type fullDisk struct {
	realDisk
	free int
}

func (d *fullDisk) WriteAt(f *os.File, b []byte, off int64) (int, error) {
	if filepath.Base(f.Name()) == "checkpoint" || d.free >= len(b) {
		return f.WriteAt(b, off)
	}
	n, _ := f.WriteAt(b[:d.free], off)
	return n, unix.ENOSPC
}

func TestDiskFullLosesNothing(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	c, err := openConverter(r.dirs, r.inst, Rotation{})
	must(t, err)
	defer c.close()
	full := &fullDisk{free: 20}
	c.disk = full
	r.append(cri.Stdout, "a line that needs more\n")
	for range 3 {
		if _, err := c.batch(newBuffers(), false); !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("got %v", err)
		}
		if got := r.entries(); got != "" {
			t.Fatalf("half an entry is visible: %q", got)
		}
	}
	r.append(cri.Stdout, "and another\n")
	full.free = 1 << 20
	_, err = c.batch(newBuffers(), false)
	must(t, err)
	if got := r.entries(); got != "stdout F a line that needs more\nstdout F and another\n" {
		t.Errorf("got %q", got)
	}
}

func TestConvertedIsFreed(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.append(cri.Stdout, strings.Repeat("0123456789abcde\n", 1<<16))
	must(t, catchUp(context.Background(), r.dirs, r.inst))
	var st unix.Stat_t
	must(t, unix.Stat(rawPath(r.rawDir(), cri.Stdout), &st))
	if st.Size != 1<<20 {
		t.Errorf("the file's size changed to %d", st.Size)
	}
	if (realDisk{}).Punch(rawPath(r.rawDir(), cri.Stdout), 0, punchStep) == nil && st.Blocks > 64 {
		t.Errorf("%d blocks still in use", st.Blocks)
	}
}

func TestTimeOfLateConversion(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.append(cri.Stdout, "early\n")
	r.append(cri.Stderr, "earlier\n")
	at := time.Date(2026, 1, 2, 15, 4, 5, 123456789, time.UTC)
	must(t, os.Chtimes(rawPath(r.rawDir(), cri.Stdout), at, at))
	must(t, os.Chtimes(rawPath(r.rawDir(), cri.Stderr), at, at.Add(-time.Second)))
	must(t, catchUp(context.Background(), r.dirs, r.inst))
	b, err := os.ReadFile(r.log())
	must(t, err)
	want := "2026-01-02T15:04:04.123456789Z stderr F earlier\n2026-01-02T15:04:05.123456789Z stdout F early\n"
	if string(b) != want {
		t.Errorf("got %s", b)
	}
}

func TestBadCheckpoint(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.append(cri.Stdout, "one\n")
	must(t, catchUp(context.Background(), r.dirs, r.inst))
	must(t, os.WriteFile(filepath.Join(r.rawDir(), "checkpoint"), make([]byte, 2*slotSize), 0o600))
	r.append(cri.Stdout, "two\n")
	must(t, catchUp(context.Background(), r.dirs, r.inst))
	// Nothing had been punched yet, so the first line comes again; it must not be lost.
	if got, _ := r.read(cri.ReadOptions{}); got != "one\none\ntwo\n" {
		t.Errorf("got %q", got)
	}
}

func TestCheckpointSurvivesTornWrite(t *testing.T) {
	t.Parallel()
	old := checkpoint{seq: 6, raw: [2]int64{10, 20}, size: 300}
	next := checkpoint{seq: 7, raw: [2]int64{11, 22}, size: 330}
	for n := range slotUsed {
		file := make([]byte, 2*slotSize)
		copy(file[old.slot():], old.encode())
		copy(file[next.slot():], next.encode()[:n])
		if got, ok := decode(file); !ok || got != old {
			t.Errorf("torn at %d: %v %v", n, got, ok)
		}
	}
}

func TestLogTakenAway(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	c, err := openConverter(r.dirs, r.inst, Rotation{})
	must(t, err)
	defer c.close()
	for i, harm := range []func(string) error{
		func(path string) error { return os.Remove(path) },
		func(path string) error { return os.Truncate(path, 0) },
	} {
		r.append(cri.Stdout, "before\n")
		_, err := c.batch(newBuffers(), false)
		must(t, err)
		must(t, harm(r.log()))
		r.append(cri.Stdout, "after\n")
		_, err = c.batch(newBuffers(), false)
		must(t, err)
		if got, _ := r.read(cri.ReadOptions{}); got != "after\n" {
			t.Errorf("%d: got %q", i, got)
		}
	}
}

func BenchmarkConvert(b *testing.B) {
	r := newFixture(b)
	var text strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&text, "%06d %s\n", i, strings.Repeat("x", 92))
	}
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		b.StopTimer()
		r.inst.Attempt++
		must(b, os.MkdirAll(r.rawDir(), 0o755))
		r.append(cri.Stdout, text.String())
		b.StartTimer()
		must(b, catchUp(context.Background(), r.dirs, r.inst))
		b.StopTimer()
		must(b, os.RemoveAll(r.dirs.Log))
		must(b, os.RemoveAll(r.dirs.Root))
		b.StartTimer()
	}
}

// TestUnfinishedIsCut: entries that were written after the last checkpoint do not stay visible.
func TestUnfinishedIsCut(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.append(cri.Stdout, "one\ntw")
	c, err := openConverter(r.dirs, r.inst, Rotation{})
	must(t, err)
	defer c.close()
	c.disk = &cutDisk{left: slotSize + len("2026-01-02T15:04:05.000000000Z stdout F one\n2026-01-02T15:04:05.000000000Z stdout P tw\n")}
	if _, err := c.batch(newBuffers(), true); !errors.Is(err, errCut) {
		t.Fatalf("got %v", err)
	}
	next, err := openConverter(r.dirs, r.inst, Rotation{})
	must(t, err)
	defer next.close()
	_, err = next.batch(newBuffers(), false)
	must(t, err)
	if got := r.entries(); got != "stdout F one\n" {
		t.Errorf("got %q", got)
	}
}

// TestLogsHaveAnOwner: the log directory of a pod is marked with podrun's root directory.
func TestLogsHaveAnOwner(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	value := make([]byte, len(r.dirs.Root))
	r.append(cri.Stdout, "a line\n")
	must(t, catchUp(t.Context(), r.dirs, r.inst))
	dir := r.dirs.PodLogs(r.inst.Key, r.inst.UID)
	if err := unix.Setxattr(dir, "trusted.podrun.test", nil, 0); err != nil {
		t.Skip("attributes of files are for root, where the file system has them")
	}
	if _, err := unix.Lgetxattr(dir, "trusted.podrun.root", value); err != nil || string(value) != r.dirs.Root {
		t.Errorf("%s is marked with %q, %v", dir, value, err)
	}
}
