package lint

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/convert"
)

// TestConvertHostileFiles: whatever the author of a compose file names in it, only regular files of a limited size are
// read.
func TestConvertHostileFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Symlink("/dev/null", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	long := filepath.Join(dir, "long")
	for _, err := range []error{os.WriteFile(long, nil, 0o600), os.Truncate(long, convert.MaxText+1)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for named, want := range map[string]string{
		"/dev/null": "env_file: /dev/null: is not a regular file", "link": "/link: is not a regular file",
		".": "is not a regular file", "long": "/long: has more than 10 MiB", "none": "/none: no such file or directory",
	} {
		path := filepath.Join(dir, "compose.yaml")
		if err := os.WriteFile(path, []byte("services: {a: {image: x, env_file: "+named+"}}"), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errOut bytes.Buffer
		err := Convert(t.Context(), []string{path}, cli.Streams{Out: &out, ErrOut: &errOut}, Options{})
		if err == nil || !strings.Contains(errOut.String(), want) || out.Len() > 0 {
			t.Errorf("%s: %v, %s, %s", named, err, &errOut, &out)
		}
	}
	err := Convert(t.Context(), []string{long}, cli.Streams{Out: io.Discard, ErrOut: io.Discard}, Options{})
	if err == nil || !strings.Contains(err.Error(), "has more than 10 MiB") {
		t.Error(err)
	}
}

// TestConvertEnds: a signal ends convert while it waits for its input.
func TestConvertEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in, writer := io.Pipe()
	defer writer.Close()
	go func() {
		if _, err := writer.Write([]byte("kind")); err == nil {
			cancel()
		}
	}()
	err := Convert(ctx, []string{"-"}, cli.Streams{In: in, Out: io.Discard, ErrOut: io.Discard}, Options{})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
