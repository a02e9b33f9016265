package cli

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestPlainWriter(t *testing.T) {
	t.Parallel()
	const text = "a\tb\n\x1b]0;title\a\rüber \u009b2J\xff\u202e€\n"
	const want = "a\tb\n\\x1b]0;title\\x07\\x0düber \\x9b2J\ufffd\\u202e€\n"
	for _, size := range []int{1, 2, 3, 100} {
		var out bytes.Buffer
		w := &plainWriter{out: &out}
		for in := []byte(text); len(in) > 0; in = in[min(size, len(in)):] {
			if n, err := w.Write(in[:min(size, len(in))]); err != nil || n != min(size, len(in)) {
				t.Fatal(n, err)
			}
		}
		if out.String() != want {
			t.Errorf("by %d: %q", size, out.String())
		}
	}
}

// wrapper is a writer that writes to another one.
type wrapper struct{ io.Writer }

func (w wrapper) Underlying() io.Writer { return w.Writer }

// TestWarnings: a warning is made safe for a terminal, and nothing in the commands prints one in another
// way.
func TestWarnings(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	Warnf(&out, "%v", "a\x1b[2J")
	if out.String() != "warning: a\\x1b[2J\n" {
		t.Errorf("%q", out.String())
	}
	for _, dir := range []string{".", "../../cmd"} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || path == "plain.go" {
				return err
			}
			text, err := os.ReadFile(path)
			if strings.Contains(string(text), `"warning:`) {
				t.Errorf("%s prints a warning without Warnf", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestPlainForTerminals: text is escaped only if the output is a terminal.
func TestPlainForTerminals(t *testing.T) {
	t.Parallel()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer terminal.Close()
	for _, out := range []io.Writer{terminal, wrapper{terminal}} {
		if _, plain := ForTerminal(out).(*plainWriter); !plain {
			t.Errorf("%T gets all as it is", out)
		}
	}
	if out := io.Writer(&strings.Builder{}); ForTerminal(out) != out {
		t.Error("a program does not get all as it is")
	}
}
