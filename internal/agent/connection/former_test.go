package connection

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/sys"
)

// TestAnotherContainerdAppeared: a podrun that had its own containerd, with images, says that it uses the machine's now,
// unless that was asked for.
func TestAnotherContainerdAppeared(t *testing.T) {
	t.Parallel()
	const socket = "/run/containerd/containerd.sock"
	for name, c := range map[string]struct {
		images     bool
		o          Options
		chosen     string
		warnsOfOwn bool
	}{
		"appeared":        {images: true, chosen: socket, warnsOfOwn: true},
		"no images":       {chosen: socket},
		"by flag":         {images: true, o: Options{Address: socket}, chosen: socket},
		"by environment":  {images: true, o: Options{Environment: socket}, chosen: socket},
		"podrun's own is": {images: true, chosen: Embedded},
	} {
		var log bytes.Buffer
		c.o.Dirs = layout.Dirs{Root: t.TempDir(), Run: t.TempDir()}
		c.o.Log = slog.New(slog.NewTextHandler(&log, nil))
		blobs := filepath.Join(c.o.Dirs.Embedded().Data(), "io.containerd.content.v1.content", "blobs", "sha256")
		if err := os.MkdirAll(blobs, 0o700); err != nil {
			t.Fatal(err)
		}
		if c.images {
			if err := os.WriteFile(filepath.Join(blobs, "aa"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c.o.warnOfFormer(c.chosen)
		if (log.Len() > 0) != c.warnsOfOwn {
			t.Errorf("%s: logged %q", name, log.String())
		}
		for _, part := range []string{socket, c.o.Dirs.Embedded().Data(), "--containerd-address embedded"} {
			if c.warnsOfOwn && !strings.Contains(log.String(), part) {
				t.Errorf("%s: %q does not say %s", name, log.String(), part)
			}
		}
	}
}

// TestOtherRoot: a command whose root directory is not that of the pods in its run directory gets to know which is.
func TestOtherRoot(t *testing.T) {
	t.Parallel()
	boot, err := sys.BootID()
	if err != nil {
		t.Fatal(err)
	}
	a, b, run := t.TempDir(), t.TempDir(), t.TempDir()
	for text, want := range map[string]string{
		boot + "\npodrun\nembedded\n" + a + "\n":    a,
		boot + "\npodrun\nembedded\n" + b + "\n":    "",
		boot + "\npodrun\nembedded\n":               "", // an older podrun's
		"other boot\npodrun\nembedded\n" + a + "\n": "",
		boot + "\npodr": "",
	} {
		dirs := layout.Dirs{Root: b, Run: run}
		if err := os.WriteFile(dirs.Binding(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := OtherRoot(dirs); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := OtherRoot(layout.Dirs{Root: b, Run: t.TempDir()}); got != "" {
		t.Errorf("without a binding: %q", got)
	}
}
