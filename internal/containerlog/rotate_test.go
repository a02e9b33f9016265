package containerlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"podrun.io/podrun/internal/containerlog/cri"
	"podrun.io/podrun/internal/test"
)

// fill writes lines from one number up to another and has them converted.
func (r fixture) fill(rotation Rotation, from, to int) {
	r.t.Helper()
	for i := from; i < to; i++ {
		r.append(cri.Stream(i%2), fmt.Sprintf("line %d\n", i))
	}
	for _, s := range streams {
		if !r.at.IsZero() {
			must(r.t, os.Chtimes(rawPath(r.rawDir(), s), r.at, r.at))
		}
	}
	c, err := openConverter(r.dirs, r.inst, rotation)
	must(r.t, err)
	defer c.close()
	must(r.t, drain(context.Background(), c, false))
}

// files are the names of the log's files, with * for the times.
func (r fixture) files() []string {
	r.t.Helper()
	entries, err := os.ReadDir(filepath.Dir(r.log()))
	must(r.t, err)
	var names []string
	for _, e := range entries {
		fields := strings.Split(e.Name(), ".")
		if len(fields) > 2 {
			if _, err := time.Parse("20060102-150405", fields[2]); err != nil {
				r.t.Errorf("file %s", e.Name())
			}
			fields[2] = "*"
		}
		names = append(names, strings.Join(fields, "."))
	}
	slices.Sort(names)
	return names
}

func TestRotatedBySizeAndCount(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	rotation := Rotation{Size: 300, Files: 4}
	tailer := New(Options{Dirs: r.dirs, Rotation: rotation, Log: quiet})
	run(t, tailer)
	tailer.Follow(r.inst, 0)
	for i := range 60 {
		r.append(cri.Stdout, fmt.Sprintf("line %d\n", i))
	}
	eventually(t, "the last line", func() bool { return r.has("line 59\n") })
	// An entry has 47 or 48 bytes, so a file has seven lines.
	want := []string{"2.log", "2.log.*.6.gz", "2.log.*.7.gz", "2.log.*.8"}
	eventually(t, "old files to go", func() bool { return slices.Equal(r.files(), want) })
	all := 1000
	for _, o := range []cri.ReadOptions{{}, {Tail: &all}} {
		got, _ := r.read(o)
		if !strings.HasPrefix(got, "line 35\nline 36\n") || !strings.HasSuffix(got, "line 58\nline 59\n") || strings.Count(got, "\n") != 25 {
			t.Errorf("got %q", got)
		}
	}
	segments, err := cri.Segments(r.log())
	must(t, err)
	for _, s := range segments {
		st, err := os.Stat(s.Name())
		must(t, err)
		if st.Mode().Perm() != 0o640 || st.Size() > 300+48 {
			t.Errorf("%s: %v, %d bytes", s.Name(), st.Mode(), st.Size())
		}
	}
}

// TestFullLogOfASilentContainerStays: a full log is not rotated until there is more output.
func TestFullLogOfASilentContainerStays(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	rotation := Rotation{Size: 10, Files: 4}
	r.fill(rotation, 0, 1)
	r.fill(rotation, 0, 0)
	if got := r.files(); !slices.Equal(got, []string{"2.log"}) {
		t.Errorf("got %v", got)
	}
	r.fill(rotation, 1, 2)
	if got := r.files(); !slices.Equal(got, []string{"2.log", "2.log.*.1"}) {
		t.Errorf("got %v", got)
	}
}

func TestReadOverSegments(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	rotation := Rotation{Size: 200, Files: 100}
	between := time.Now().Add(-time.Hour)
	r.at = between.Add(-time.Hour)
	r.fill(rotation, 0, 20)
	segments, err := cri.Segments(r.log())
	must(t, err)
	for _, s := range segments {
		must(t, os.Chtimes(s.Path, r.at, r.at))
	}
	must(t, cleanSegments(r.log(), rotation.Files))
	r.at = between.Add(time.Minute)
	r.fill(rotation, 20, 40)
	lines := func(from int) (text [2]string) {
		for i := from; i < 40; i++ {
			text[i%2] += fmt.Sprintf("line %d\n", i)
		}
		return text
	}
	for n := range 45 {
		var out, errOut bytes.Buffer
		must(t, cri.Read(context.Background(), r.log(), cri.ReadOptions{Tail: &n}, &out, &errOut))
		// The streams are converted one after the other, so their last lines are not those of the numbers.
		if got := strings.Count(out.String()+errOut.String(), "\n"); got != min(n, 40) ||
			!strings.HasSuffix(lines(0)[0], out.String()) || !strings.HasSuffix(lines(0)[1], errOut.String()) {
			t.Errorf("the last %d: %q and %q", n, out.String(), errOut.String())
		}
	}
	if out, errOut := r.read(cri.ReadOptions{Since: between}); out != lines(20)[0] || errOut != lines(20)[1] {
		t.Errorf("since then: %q and %q", out, errOut)
	}
	if out, _ := r.read(cri.ReadOptions{Since: time.Now().Add(time.Hour)}); out != "" {
		t.Errorf("of the future: %q", out)
	}
	// Cut off between putting the log away and making a new one.
	must(t, os.Rename(r.log(), r.log()+".20260102-150405.100"))
	one := 1
	if out, errOut := r.read(cri.ReadOptions{Tail: &one}); out+errOut != "line 39\n" && out+errOut != "line 38\n" {
		t.Errorf("the last line: %q", out+errOut)
	}
	if out, errOut := r.read(cri.ReadOptions{}); out != lines(0)[0] || errOut != lines(0)[1] {
		t.Errorf("got %q and %q", out, errOut)
	}
}

// TestFollowSlowlyOverSegments: a reader that is slower than the rotation misses nothing as long as
// the files exist, compressed or not.
func TestFollowSlowlyOverSegments(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	rotation := Rotation{Size: 1000, Files: 1000}
	r.fill(rotation, 0, 2)
	in, out := io.Pipe()
	stop, done := make(chan struct{}), make(chan error)
	go func() {
		err := cri.Read(context.Background(), r.log(), cri.ReadOptions{Follow: true, Stop: stop}, out, out)
		done <- errors.Join(err, out.Close())
	}()
	// Held up in the middle of the first line.
	first := make([]byte, 3)
	_, err := io.ReadFull(in, first)
	must(t, err)
	for i := 2; i < 400; i += 2 {
		r.fill(rotation, i, i+2)
		if i%100 == 0 {
			must(t, cleanSegments(r.log(), rotation.Files))
		}
	}
	close(stop)
	rest, err := io.ReadAll(in)
	must(t, err)
	must(t, <-done)
	got := slices.Collect(strings.Lines(string(first) + string(rest)))
	slices.Sort(got)
	want := make([]string, 400)
	for i := range want {
		want[i] = fmt.Sprintf("line %d\n", i)
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %d lines of %d: %q", len(got), len(want), got)
	}
	if segments, err := cri.Segments(r.log()); err != nil || len(segments) < 15 || !segments[0].Compressed {
		t.Errorf("parts: %v, %v", segments, err)
	}
}

// TestCompressionCutOff: if compressing is interrupted at any step, it is repeated, and readers get
// the same text.
func TestCompressionCutOff(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	rotation := Rotation{Size: 200, Files: 100}
	r.fill(rotation, 0, 30)
	want, wantErr := r.read(cri.ReadOptions{})
	segments, err := cri.Segments(r.log())
	must(t, err)
	first, err := os.ReadFile(segments[0].Path)
	must(t, err)
	must(t, os.WriteFile(segments[1].Path+cri.CompressedSuffix+tmpSuffix, []byte("half"), 0o600))
	must(t, cleanSegments(r.log(), rotation.Files))
	must(t, os.WriteFile(segments[0].Path, first, 0o640)) // it is there both ways
	for range 2 {
		if out, errOut := r.read(cri.ReadOptions{}); out != want || errOut != wantErr {
			t.Errorf("got %q and %q", out, errOut)
		}
		must(t, cleanSegments(r.log(), rotation.Files))
	}
	for _, name := range r.files() {
		if strings.HasSuffix(name, tmpSuffix) || name == "2.log.*.1" {
			t.Errorf("left: %s", name)
		}
	}
	// Files of others in the directory are nobody's parts.
	foreign := filepath.Join(filepath.Dir(r.log()), "2.log.1")
	must(t, os.WriteFile(foreign, []byte("keep"), 0o600))
	must(t, cleanSegments(r.log(), 2))
	if _, err := os.Stat(foreign); err != nil {
		t.Error(err)
	}
	if segments, err := cri.Segments(r.log()); err != nil || len(segments) != 1 {
		t.Errorf("parts: %v, %v", segments, err)
	}
}

// TestCompressedAtTheEnd: what a killed process has rotated and not compressed is, if the container ends before another
// follows it.
func TestCompressedAtTheEnd(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	rotation := Rotation{Size: 200, Files: 100}
	r.fill(rotation, 0, 30)
	tailer := New(Options{Dirs: r.dirs, Rotation: rotation, Unwatched: true, Log: quiet})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- tailer.Run(ctx) }()
	for again := range 2 { // the second time as after a crash, when all is done but the exit is not reaped
		if again == 1 {
			segments, err := cri.Segments(r.log())
			must(t, err)
			must(t, os.WriteFile(segments[0].Path, nil, 0o600))
		}
		must(t, tailer.Finish(t.Context(), r.inst))
		test.Eventually(t, "compressed", func() bool {
			segments, err := cri.Segments(r.log())
			must(t, err)
			return len(segments) > 2 && !slices.ContainsFunc(segments[:len(segments)-1], func(s cri.Segment) bool {
				_, err := os.Lstat(s.Path)
				return !s.Compressed || !errors.Is(err, os.ErrNotExist)
			})
		})
	}
	cancel()
	must(t, <-done)
}

// TestCompressedByOne: what another process is compressing is left to it, and what it has just compressed too.
func TestCompressedByOne(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	rotation := Rotation{Size: 200, Files: 100}
	r.fill(rotation, 0, 30)
	segments, err := cri.Segments(r.log())
	must(t, err)
	other, err := os.Open(segments[0].Path)
	must(t, err)
	defer other.Close()
	must(t, tryLock(other))
	must(t, cleanSegments(r.log(), rotation.Files))
	now, err := cri.Segments(r.log())
	must(t, err)
	if now[0].Compressed || !now[1].Compressed {
		t.Errorf("compressed: %t and %t", now[0].Compressed, now[1].Compressed)
	}
	if _, err := os.Lstat(segments[0].Path + cri.CompressedSuffix + tmpSuffix); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("both write the same file: %v", err)
	}
	unlock(other)
	must(t, cleanSegments(r.log(), rotation.Files))
	if now, err = cri.Segments(r.log()); err != nil || !now[0].Compressed {
		t.Errorf("it is not compressed: %v", err)
	}
}

// TestDamagedSegment: a damaged part is an error, and is not skipped.
func TestDamagedSegment(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	rotation := Rotation{Size: 200, Files: 100}
	r.fill(rotation, 0, 30)
	must(t, cleanSegments(r.log(), rotation.Files))
	segments, err := cri.Segments(r.log())
	must(t, err)
	must(t, os.Truncate(segments[0].Name(), 40))
	var out bytes.Buffer
	if err := cri.Read(context.Background(), r.log(), cri.ReadOptions{}, &out, &out); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
}

func TestRemoveLogs(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	tailer := New(Options{Dirs: r.dirs, Log: quiet})
	must(t, tailer.RemoveLogs(r.inst)) // there is no directory
	dir := filepath.Dir(r.log())
	must(t, os.MkdirAll(dir, 0o755))
	names := []string{"0.log", "1.log", "1.log.20260102-150405.7.gz", "2.log.20260102-150405.1", "2.log", "3.log", "10.log", "1.txt", "x.log"}
	for _, name := range names {
		must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	must(t, tailer.RemoveLogs(r.inst)) // of attempt 2
	entries, err := os.ReadDir(dir)
	must(t, err)
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if !slices.Equal(left, []string{"1.txt", "10.log", "3.log", "x.log"}) {
		t.Errorf("left: %v", left)
	}
}
