package images

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
)

// store has the images whose names the loaded archives contain. Of an archive that ends with " other" it has the first
// image only.
type store struct {
	images map[string]bool
	loads  int
}

func (s *store) Load(_ context.Context, archive io.Reader) ([]string, error) {
	text, err := io.ReadAll(archive)
	if err != nil || string(text) == "torn" {
		return nil, errors.Join(err, errors.New("no archive"))
	}
	s.loads++
	if name, partly := strings.CutSuffix(string(text), " other"); partly {
		s.images[name] = true
		return []string{name}, errors.New("for another platform")
	}
	s.images[string(text)] = true
	return []string{string(text)}, nil
}

func (s *store) Resolve(_ context.Context, ref string) (pod.Image, error) {
	if !s.images[ref] {
		return pod.Image{}, errors.New("no such image")
	}
	return pod.Image{}, nil
}

// TestLoad: an archive is loaded when it has changed or its images are missing, and names images
// that garbage collection must keep.
func TestLoad(t *testing.T) {
	t.Parallel()
	dirs := layout.Dirs{Root: t.TempDir()}
	var log bytes.Buffer
	a := Archives{Dirs: dirs, Log: slog.New(slog.NewTextHandler(&log, nil))}
	s := &store{images: map[string]bool{}}
	a.Load(t.Context(), s) // there is no directory
	if err := os.MkdirAll(dirs.ImageFiles().Archives(), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"a.tar": "a:1", "b.tar.gz": "torn", ".c.tar": "c:1", "d.txt": "d:1"} {
		if err := os.WriteFile(filepath.Join(dirs.ImageFiles().Archives(), name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, make := range map[string]func(string) error{
		"f.tar": func(path string) error { return unix.Mkfifo(path, 0o600) }, // which to open would wait for a writer
		"l.tar": func(path string) error { return os.Symlink("a.tar", path) },
	} {
		if err := make(filepath.Join(dirs.ImageFiles().Archives(), name)); err != nil {
			t.Fatal(err)
		}
	}
	load := func(want int, why string) {
		t.Helper()
		s.loads = 0
		waits := time.AfterFunc(10*time.Second, func() { // it gets a writer, so that the test ends
			if f, err := os.OpenFile(filepath.Join(dirs.ImageFiles().Archives(), "f.tar"), os.O_RDWR, 0); err == nil {
				f.Close()
			}
		})
		a.Load(t.Context(), s)
		if !waits.Stop() {
			t.Fatalf("%s: it waits for the writer of a pipe", why)
		}
		if s.loads != want || !s.images["a:1"] {
			t.Errorf("%s: %d loads, %v", why, s.loads, s.images)
		}
	}
	load(2, "new, and a link to it")
	if got := log.String(); !strings.Contains(got, "files=d.txt\n") || !strings.Contains(got, ".tar.zst") {
		t.Errorf("what is passed over: %s", got)
	}
	load(0, "unchanged")
	delete(s.images, "a:1")
	load(1, "their image is missing: the first one loads it")
	if err := os.WriteFile(dirs.ImageFiles().Loaded(), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	load(2, "the record is torn")

	// Whoever waits for the load hears of each archive that is loaded, before it and after it.
	var reported []string
	a.Loading = func(file string) func() {
		reported = append(reported, filepath.Base(file))
		return func() { reported = append(reported, fmt.Sprint(s.loads)) }
	}
	load(0, "unchanged again")
	if want := []string{"b.tar.gz", "0"}; !slices.Equal(reported, want) { // which cannot be loaded
		t.Errorf("%q, want %q", reported, want)
	}
	if err := os.Remove(dirs.ImageFiles().Loaded()); err != nil {
		t.Fatal(err)
	}
	reported = nil
	load(2, "the record is lost")
	if want := []string{"a.tar", "1", "b.tar.gz", "1", "l.tar", "2"}; !slices.Equal(reported, want) {
		t.Errorf("%q, want %q", reported, want)
	}
	a.Loading = nil

	p := &v1.Pod{Spec: v1.PodSpec{
		Containers: []v1.Container{{Image: "web:1"}},
		Volumes:    []v1.Volume{{VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "data:1"}}}},
	}}
	want := manifest.Desired{Pods: map[pod.Key]*v1.Pod{{Name: "web"}: p}, Complete: true}
	refs, sure := a.Needed(want)
	if slices.Sort(refs); !sure || !slices.Equal(refs, []string{"a:1", "a:1", "data:1", "web:1"}) {
		t.Errorf("needed: %v, %t", refs, sure)
	}
	want.Problems = []manifest.Problem{{Err: errors.New("unreadable"), Blind: true}}
	if _, sure := a.Needed(want); sure {
		t.Error("sure although a manifest cannot be read")
	}
}

// directory makes Archives of a directory with these archives, by their images, and returns what they are and what
// garbage collection must keep of them after each start.
func directory(t *testing.T, files ...string) (a Archives, log *bytes.Buffer, start func(s *store) []string) {
	t.Helper()
	log = &bytes.Buffer{}
	a = Archives{Dir: t.TempDir(), Dirs: layout.Dirs{Root: t.TempDir()}, Log: slog.New(slog.NewTextHandler(log, nil))}
	for _, text := range files {
		name := strings.Fields(text)[0] + ".tar"
		if err := os.WriteFile(filepath.Join(a.Dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return a, log, func(s *store) []string {
		t.Helper()
		log.Reset()
		a.Load(t.Context(), s)
		refs, _ := a.Needed(manifest.Desired{})
		slices.Sort(refs)
		return refs
	}
}

// TestRemovedArchive: the images of an archive that was removed need not be kept, unless it may only not be there now.
func TestRemovedArchive(t *testing.T) {
	t.Parallel()
	a, log, start := directory(t, "a", "b", "c")
	s := &store{images: map[string]bool{}}
	check := func(why string, want ...string) {
		t.Helper()
		if got := start(s); !slices.Equal(got, want) {
			t.Errorf("%s: needed: %q, want %q", why, got, want)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check("new", "a", "b", "c")
	away := a.Dir + "-away"
	must(os.Rename(a.Dir, away))
	check("the directory is not there", "a", "b", "c")
	must(os.Mkdir(a.Dir, 0o700))
	must(os.WriteFile(filepath.Join(a.Dir, "README"), nil, 0o600))
	check("its file system is not mounted", "a", "b", "c")
	must(os.RemoveAll(a.Dir))
	must(os.Rename(away, a.Dir))
	must(os.Remove(filepath.Join(a.Dir, "a.tar")))
	must(os.Remove(filepath.Join(a.Dir, "b.tar")))
	must(os.Symlink("elsewhere", filepath.Join(a.Dir, "b.tar")))
	check("one removed, one a link to what is not there", "b", "c")
	if got := log.String(); !strings.Contains(got, "a.tar") || strings.Contains(got, "c.tar") {
		t.Errorf("log: %s", got)
	}
	other := a
	other.Dir = t.TempDir()
	must(os.WriteFile(filepath.Join(other.Dir, "d.tar"), []byte("d"), 0o600))
	other.Load(t.Context(), s)
	check("and from another directory", "b", "c", "d")
}

// TestArchiveLoadedInPart: what was loaded of an archive is kept although the rest cannot be loaded, which is tried and
// reported at each start.
func TestArchiveLoadedInPart(t *testing.T) {
	t.Parallel()
	a, log, start := directory(t, "a other")
	for range 2 {
		s := &store{images: map[string]bool{}}
		if got := start(s); !slices.Equal(got, []string{"a"}) || s.loads != 1 || !strings.Contains(log.String(), "another platform") {
			t.Errorf("needed: %q; %d loads; log: %s", got, s.loads, log)
		}
	}
	if err := os.WriteFile(filepath.Join(a.Dir, "a.tar"), []byte("b other"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := start(&store{images: map[string]bool{}}); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("what the name meant before goes: %q", got)
	}
}
