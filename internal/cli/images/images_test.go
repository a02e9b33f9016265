package images

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type fakeStore struct {
	Store
	archive string
}

func (f *fakeStore) Load(_ context.Context, archive io.Reader) ([]string, error) {
	b, err := io.ReadAll(archive)
	f.archive = string(b)
	return []string{"docker.io/library/web:1"}, err
}

func (*fakeStore) ListImages(context.Context) ([]pod.StoredImage, error) {
	return []pod.StoredImage{
		{Name: "docker.io/library/web:1", ID: "docker.io/library/web@sha256:0123456789abcdef", Size: 1_999_999, Used: true},
		{Name: "x:1", ID: "sha256:fedcba9876543210", Size: 12, CreatedAt: time.Now().Add(-3 * time.Hour)},
	}, nil
}

func (*fakeStore) PruneImages(context.Context, ...string) ([]string, error) { return nil, nil }

func TestImages(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	streams := cli.Streams{In: strings.NewReader("archive"), Out: &out}
	s := &fakeStore{}
	must(t, List(context.Background(), &out, s, printers.Format{}))
	want := "IMAGE                     DIGEST         SIZE    AGE         USED\n" +
		"docker.io/library/web:1   0123456789ab   2.0MB   <unknown>   yes\n" +
		"x:1                       fedcba987654   12B     3h          no\n"
	if out.String() != want {
		t.Errorf("got\n%s", out.String())
	}
	if got := Names(context.Background(), s, []string{"x:1"}); len(got) != 1 || got[0] != "docker.io/library/web:1" {
		t.Errorf("completes %q", got)
	}
	var asJSON bytes.Buffer
	format, err := printers.ParseFormat("json")
	must(t, err)
	must(t, List(context.Background(), &asJSON, s, format))
	if !strings.Contains(asJSON.String(), `"sizeBytes": 1999999`) || !strings.Contains(asJSON.String(), `"used": true`) {
		t.Errorf("in JSON:\n%s", asJSON.String())
	}
	names, err := printers.ParseFormat("name")
	must(t, err)
	var asNames bytes.Buffer
	must(t, List(context.Background(), &asNames, s, names))
	if asNames.String() != "docker.io/library/web:1\nx:1\n" {
		t.Errorf("names: %s", asNames.String())
	}
	_, err = Load(context.Background(), streams, s, "-")
	must(t, err)
	if s.archive != "archive" || !strings.HasSuffix(out.String(), "docker.io/library/web:1\n") {
		t.Errorf("loaded %q, said %q", s.archive, out.String())
	}
	_, err = Load(context.Background(), streams, s, "/absent.tar")
	if cli.Exit(io.Discard, err, cli.ExitInterrupted) != cli.ExitUsage {
		t.Errorf("got %v", err)
	}
}

func (*fakeStore) Save(_ context.Context, refs []string, _ io.Writer) error {
	if refs[0] == "none" {
		return runtime.ErrNotFound
	}
	return &runtime.PermanentError{Fix: "pull it", Err: errors.New("not stored")}
}

// TestHints: what to do about an image that cannot be saved is said.
func TestHints(t *testing.T) {
	t.Parallel()
	for ref, want := range map[string]string{"none": "hint: podrun images lists", "web:1": "error: not stored\nhint: pull it\n"} {
		var out bytes.Buffer
		code := cli.Exit(&out, Save(t.Context(), io.Discard, &fakeStore{}, []string{ref}, "-"), cli.ExitInterrupted)
		if code != cli.ExitFailed || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %d, %q", ref, code, out.String())
		}
	}
}

// TestSame: pods and archives write the name of an image in several ways.
func TestSame(t *testing.T) {
	t.Parallel()
	same := Same([]string{"docker.io/library/nginx:1", "web", "not a reference"})
	for image, want := range map[string]bool{
		"nginx:1": true, "nginx": false, "docker.io/web:latest": true, "not a reference": true, "other": false,
	} {
		if same(image) != want {
			t.Errorf("%s: %t", image, !want)
		}
	}
}

// TestArchivesThatCannotBeLoaded: an empty file is said to be empty, and nobody waits for ever for a writer of a FIFO.
func TestArchivesThatCannotBeLoaded(t *testing.T) {
	t.Parallel()
	empty, fifo := filepath.Join(t.TempDir(), "empty"), filepath.Join(t.TempDir(), "fifo")
	must(t, os.WriteFile(empty, nil, 0o600))
	must(t, syscall.Mkfifo(fifo, 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	for file, want := range map[string]string{
		empty: empty + ": is empty", filepath.Dir(empty): "is a directory", empty + "x": "no such file",
	} {
		if _, err := Load(ctx, cli.Streams{}, &fakeStore{}, file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", file, err)
		}
	}
	cancel()
	if _, err := Load(ctx, cli.Streams{}, &fakeStore{}, fifo); !errors.Is(err, context.Canceled) {
		t.Errorf("a FIFO: %v", err)
	}
}
