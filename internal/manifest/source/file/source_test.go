package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/manifest"
)

func podText(name, image string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {containers: [{name: c, image: %q}]}\n", name, image)
}

func put(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	move(t, path+".new", path)
}

func move(t testing.TB, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func remove(t testing.TB, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

// source is a file source that runs until the test ends.
type source struct {
	t    testing.TB
	out  chan manifest.Snapshot
	last manifest.Snapshot
	full bool // no snapshot may say that there is nothing
}

func startFile(t testing.TB, path string) *source {
	t.Helper()
	return startFileWith(t, Options{Path: path})
}

func startFileWith(t testing.TB, o Options) *source {
	t.Helper()
	o.NodeName, o.CheckFrequency, o.Log = "node1", time.Hour, slog.New(slog.DiscardHandler)
	f := New(o)
	ctx, cancel := context.WithCancel(context.Background())
	s := &source{t: t, out: make(chan manifest.Snapshot)}
	done := make(chan error)
	go func() { done <- f.Run(ctx, s.out) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestGivenUIDs: a snapshot says which UIDs manifests give.
func TestGivenUIDs(t *testing.T) {
	t.Parallel()
	given := strings.Replace(podText("a", "i"), "{name: a}", "{name: a, uid: mine}", 1)
	text := NewStdin(strings.NewReader(given+"---\n"+podText("b", "i")), manifest.LoadOptions{NodeName: "node1"})
	dir := t.TempDir()
	put(t, dir+"/a.yaml", given)
	put(t, dir+"/b.yaml", podText("b", "i"))
	for name, s := range map[string]manifest.Snapshot{
		"stdin":     text.Read(t.Context()),
		"directory": startFile(t, dir).until("a=i b=i"),
	} {
		if len(s.GivenUIDs) != 1 || s.GivenUIDs[0] != "mine" {
			t.Errorf("%s: %q", name, s.GivenUIDs)
		}
	}
}

// until waits for a snapshot that says this.
func (s *source) until(want string) manifest.Snapshot {
	s.t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case s.last = <-s.out:
			if says(s.last) == want {
				return s.last
			}
			if s.full && says(s.last) == "" {
				s.t.Fatalf("want %q, and it says that there is nothing", want)
			}
		case <-deadline:
			s.t.Fatalf("want %q, last heard %q (%v)", want, says(s.last), s.last)
		}
	}
}

// says is a snapshot in one line: pods with their images, files with problems, or an error.
func says(s manifest.Snapshot) string {
	if s.Err != nil {
		return "error"
	}
	var words []string
	for _, p := range s.Pods {
		words = append(words, strings.TrimSuffix(p.Name, "-node1")+"="+p.Spec.Containers[0].Image)
	}
	for _, p := range s.Problems {
		bad := "bad "
		if p.Blind {
			bad = "blind "
		}
		words = append(words, bad+filepath.Base(p.Origin.Path))
	}
	return strings.Join(words, " ")
}

func TestFileSourceFollowsADirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	put(t, at("a.yaml"), podText("a", "i:1"))
	for _, name := range []string{".hidden.yaml", "a.yaml.bak", "notes.txt"} {
		put(t, at(name), podText("x", "i:1"))
	}
	if err := os.Mkdir(at("sub.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := startFile(t, dir)
	first := s.until("a=i:1")
	put(t, at("b.json"), `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b"},"spec":{"containers":[{"name":"c","image":"i:1"}]}}`)
	s.until("a=i:1 b=i:1")
	put(t, at("b.json"), podText("b", "i:2"))
	second := s.until("a=i:1 b=i:2")
	if second.Pods[0] != first.Pods[0] {
		t.Error("an unchanged file was read again")
	}
	move(t, at("a.yaml"), at("z.yml"))
	moved := s.until("b=i:2 a=i:1")
	if !manifest.SameRun(first.Pods[0], moved.Pods[1]) || first.Pods[0].UID == moved.Pods[1].UID {
		t.Error("a renamed file must be the same run under another UID")
	}
	remove(t, at("b.json"))
	s.until("a=i:1")
	remove(t, at("z.yml"))
	s.until("")
}

func TestFileSourceKeepsWhatTurnsBad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := filepath.Join(dir, "a.yaml")
	put(t, a, podText("a", "i:1"))
	s := startFile(t, dir)
	s.until("a=i:1")
	for _, bad := range []string{"{", "", "# nothing\n", "kind: Deployment\n", podText("a", "")} {
		put(t, a, bad)
		s.until("a=i:1 bad a.yaml")
		put(t, a, podText("a", "i:1"))
		s.until("a=i:1")
	}
	// Without a last good state there is only the problem.
	put(t, filepath.Join(dir, "b.yaml"), podText("b", ""))
	snap := s.until("a=i:1 bad b.yaml")
	if got := snap.Problems[0].Key.String(); got != "default/b-node1" {
		t.Errorf("the problem is about %s", got)
	}
	// A link that leads nowhere is unreadable, not gone.
	remove(t, filepath.Join(dir, "b.yaml"))
	remove(t, a)
	s.until("")
	elsewhere := filepath.Join(t.TempDir(), "a.yaml")
	put(t, elsewhere, podText("a", "i:1"))
	if err := os.Symlink(elsewhere, a); err != nil {
		t.Fatal(err)
	}
	s.until("a=i:1")
	remove(t, elsewhere)
	s.until("a=i:1 bad a.yaml")
	put(t, elsewhere, podText("a", "i:2"))
	s.until("a=i:2")
}

func TestFileSourceNeverTakesAVanishedDirectoryForAnEmptyOne(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "x", "pods")
	s := startFile(t, dir)
	s.until("error")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s.until("")
	put(t, filepath.Join(dir, "a.yaml"), podText("a", "i:1"))
	s.until("a=i:1")
	s.full = true
	move(t, dir, dir+".away")
	s.until("error")
	// As a mount point without its file system.
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s.until("error")
	remove(t, dir)
	s.until("error")
	move(t, dir+".away", dir)
	s.until("a=i:1")
	put(t, filepath.Join(dir, "b.yaml"), podText("b", "i:1"))
	s.until("a=i:1 b=i:1")
}

// What nobody has read may be wanted; what was read, or was not there, is known.
func TestFileSourceTellsWhatItNeverSawGood(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	put(t, a, "{")
	s := startFile(t, dir)
	s.until("blind a.yaml")
	put(t, b, "{")
	s.until("blind a.yaml bad b.yaml")
	put(t, a, "apiVersion: v1\nkind: List\nitems: []\n")
	s.until("bad b.yaml")
	put(t, a, "{")
	s.until("bad a.yaml bad b.yaml")
}

func TestFileSourceThatIsOptional(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "etc", "pods")
	s := startFileWith(t, Options{Path: dir, Optional: true})
	s.until("")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "a.yaml"), podText("a", "i:1"))
	s.until("a=i:1")
	remove(t, dir)
	s.until("error")
}

func TestFileSourceOfOneFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pod.manifest")
	put(t, path, podText("a", "i:1"))
	s := startFile(t, path)
	s.until("a=i:1")
	put(t, path, podText("a", "i:2"))
	s.until("a=i:2")
	remove(t, path)
	s.until("error")
	put(t, path, podText("a", "i:3"))
	s.until("a=i:3")
}

// As Kubernetes projects a ConfigMap: names link into ..data, which links to a directory that is swapped.
func TestFileSourceFollowsSwaps(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	version := func(name, image string) {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(dir, name, "a.yaml"), podText("a", image))
		if err := os.Symlink(name, filepath.Join(dir, "..tmp")); err != nil {
			t.Fatal(err)
		}
		move(t, filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data"))
	}
	version("..1", "i:1")
	if err := os.Symlink("..data/a.yaml", filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	s := startFile(t, dir)
	s.until("a=i:1")
	version("..2", "i:2")
	s.until("a=i:2")
}

func TestFileSourceFollowsALinkToADirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, version := range []string{"1", "2"} {
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(dir, version, "a.yaml"), podText("a", "i:"+version))
	}
	link := filepath.Join(dir, "pods")
	point := func(version string) {
		if err := os.Symlink(version, link+".new"); err != nil {
			t.Fatal(err)
		}
		move(t, link+".new", link)
	}
	point("1")
	s := startFile(t, link)
	s.until("a=i:1")
	point("2")
	s.until("a=i:2")
	put(t, filepath.Join(dir, "2", "b.yaml"), podText("b", "i:1"))
	s.until("a=i:2 b=i:1")
}

func TestFileSourceWaitsForWriters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	put(t, path, podText("a", "i:1"))
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	probe, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer probe.Close()
	if !written(probe) {
		t.Skip("this file system has no leases")
	}
	s := startFile(t, dir)
	text := podText("a", "i:2") + "---\n" + podText("b", "i:2")
	for i := range text {
		if _, err := f.WriteString(text[i : i+1]); err != nil {
			t.Fatal(err)
		}
	}
	put(t, filepath.Join(dir, "z.yaml"), podText("z", "i:1"))
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	// The first word waited for the writer to finish; the other file may have come after the look.
	s.last = <-s.out
	if got := says(s.last); !strings.HasPrefix(got, "a=i:2 b=i:2") {
		t.Errorf("first heard %q", got)
	} else if got != "a=i:2 b=i:2 z=i:1" {
		s.until("a=i:2 b=i:2 z=i:1")
	}
	// An edit that takes long keeps what was there, and is a problem after a while.
	if f, err = os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0); err != nil {
		t.Fatal(err)
	}
	s.until("a=i:2 b=i:2 z=i:1 bad a.yaml")
	if _, err := f.WriteString(podText("a", "i:3")); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	s.until("a=i:3 z=i:1")
}

func TestReadOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, filepath.Join(dir, "a.yaml"), podText("a", "i:1"))
	put(t, filepath.Join(dir, "b.yaml"), "{")
	if got := says(Read(t.Context(), Options{Path: dir, NodeName: "node1"})); got != "a=i:1 blind b.yaml" {
		t.Errorf("read %q", got)
	}
	if got := says(Read(t.Context(), Options{Path: filepath.Join(dir, "none"), NodeName: "node1"})); got != "error" {
		t.Errorf("read %q", got)
	}
	text := NewStdin(strings.NewReader(podText("a", "i:1")), manifest.LoadOptions{NodeName: "node1"})
	if got := says(text.Read(t.Context())); got != "a=i:1" {
		t.Errorf("read %q", got)
	}
	if got := NewStdin(strings.NewReader("{"), manifest.LoadOptions{NodeName: "node1"}).Read(t.Context()).Problems[0].Err.Error(); !strings.HasPrefix(got, "stdin:1: ") {
		t.Errorf("error %q", got)
	}
}

// TestLinksToWhatIsNoFile: a link leads to what cannot be read to its end, or must not be opened. The file has an error,
// at once, and the others of its directory are read.
func TestLinksToWhatIsNoFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, filepath.Join(dir, "z.yaml"), podText("z", "i:1"))
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		"endless.yaml": "/proc/kmsg", "kernel.yaml": "/proc/uptime", "device.yaml": "/dev/zero", "fifo.yaml": "pipe",
		"sys.yaml": "/sys/kernel/mm/transparent_hugepage/enabled",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	read := make(chan string, 1)
	go func() { read <- says(Read(t.Context(), Options{Path: dir, NodeName: "node1"})) }()
	select {
	case got := <-read:
		if got != "z=i:1 blind device.yaml blind endless.yaml blind fifo.yaml blind kernel.yaml blind sys.yaml" {
			t.Errorf("read %q", got)
		}
	case <-time.After(time.Minute):
		t.Fatal("does not come to an end")
	}
}

// TestStdinIsNotWaitedFor: whoever is to write the input may take for ever.
func TestStdinIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	in, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- NewStdin(in, manifest.LoadOptions{}).Run(ctx, make(chan manifest.Snapshot)) }()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if s := NewStdin(in, manifest.LoadOptions{}).Read(ctx); !errors.Is(s.Err, context.Canceled) {
		t.Errorf("read %+v", s)
	}
}

// BenchmarkDrop is the time from a manifest's rename into the directory to the snapshot that has it.
func BenchmarkDrop(b *testing.B) {
	dir := b.TempDir()
	s := startFile(b, dir)
	<-s.out
	for i := range b.N {
		b.StopTimer()
		staged := filepath.Join(dir, ".staged")
		if err := os.WriteFile(staged, []byte(podText("a", fmt.Sprintf("i:%d", i))), 0o600); err != nil {
			b.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond) // so that the staging itself has been heard
		b.StartTimer()
		move(b, staged, filepath.Join(dir, "a.yaml"))
		<-s.out
	}
}

// BenchmarkScan is a look at a directory of many manifests of which none changed.
func BenchmarkScan(b *testing.B) {
	dir := b.TempDir()
	for i := range 5000 {
		put(b, filepath.Join(dir, fmt.Sprintf("%d.yaml", i)), podText(fmt.Sprintf("p%d", i), "i:1"))
	}
	s := newScanner(dir, "node1")
	began := time.Now()
	s.scan(began)
	b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms/first")
	time.Sleep(2 * freshness)
	s.scan(time.Now())
	b.ResetTimer()
	for range b.N {
		if s.scan(time.Now()).changed {
			b.Fatal("changed")
		}
	}
}
