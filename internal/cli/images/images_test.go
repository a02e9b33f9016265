package images

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/pod"
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

func (*fakeStore) PruneImages(context.Context) ([]string, error) { return nil, nil }

func TestImages(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	streams := cli.Streams{In: strings.NewReader("archive"), Out: &out}
	s := &fakeStore{}
	must(t, List(context.Background(), &out, s))
	want := "IMAGE                     DIGEST         SIZE    AGE         USED\n" +
		"docker.io/library/web:1   0123456789ab   2.0MB   <unknown>   yes\n" +
		"x:1                       fedcba987654   12B     3h          no\n"
	if out.String() != want {
		t.Errorf("got\n%s", out.String())
	}
	must(t, Load(context.Background(), streams, s, "-"))
	if s.archive != "archive" || !strings.HasSuffix(out.String(), "docker.io/library/web:1\n") {
		t.Errorf("loaded %q, said %q", s.archive, out.String())
	}
	err := Load(context.Background(), streams, s, "/absent.tar")
	if cli.Exit(io.Discard, err, cli.ExitInterrupted) != cli.ExitUsage {
		t.Errorf("got %v", err)
	}
}
