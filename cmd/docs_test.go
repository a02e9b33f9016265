package cmd

import (
	"bytes"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"podrun.io/podrun/internal/cli"
)

// TestDocs: docs/cli has a page per command, generated from the help of the command.
func TestDocs(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("..", "docs", "cli")
	want := map[string][]byte{}
	for _, c := range visible((&app{Streams: cli.Streams{In: strings.NewReader(""), Out: io.Discard, ErrOut: io.Discard}}).root()) {
		var page bytes.Buffer
		c.DisableAutoGenTag = true
		if err := doc.GenMarkdown(c, &page); err != nil {
			t.Fatal(err)
		}
		want[strings.ReplaceAll(c.CommandPath(), " ", "_")+".md"] = page.Bytes()
	}
	if *update {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, page := range want {
			if err := os.WriteFile(filepath.Join(dir, name), page, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, e := range entries {
		have = append(have, e.Name())
		got, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want[e.Name()]) {
			t.Errorf("%s is not what the command says; run: go test ./cmd -run TestDocs -update", e.Name())
		}
	}
	if names := slices.Sorted(maps.Keys(want)); !slices.Equal(names, have) {
		t.Errorf("docs/cli has %v, the commands are %v", have, names)
	}
}

// theirs are flags of other programs that documents mention, by document.
var theirs = map[string][]string{
	"*":                {"now", "privileged", "unix-socket", "preserve-env"}, // systemctl's, docker's, curl's, sudo's
	"from-podman.md":   {"replace", "configmap"},
	"from-kubelet.md":  {"now", "kubeconfig", "hostname-override"},
	"to-kubernetes.md": {"dry-run"},
	"start.md":         {"auto-remove"},                                                                                  // apt's
	"housekeeping.md":  {"kill-whom", "one-file-system", "numeric-owner", "acls", "xattrs", "xattrs-include", "exclude"}, // systemctl's, tar's
}

// TestFlagsInDocuments: all other flags in the documents exist in podrun.
func TestFlagsInDocuments(t *testing.T) {
	t.Parallel()
	known := map[string]bool{"help": true}
	for _, c := range visible(Tree()) {
		c.Flags().VisitAll(func(f *pflag.Flag) { known[f.Name] = true })
		c.InheritedFlags().VisitAll(func(f *pflag.Flag) { known[f.Name] = true })
	}
	docs, err := filepath.Glob("../docs/*.md")
	must(t, err)
	flag := regexp.MustCompile("(?:^|[ `(])--([a-z][a-z-]+)")
	for _, doc := range append(docs, "../README.md") {
		text, err := os.ReadFile(doc)
		must(t, err)
		for _, m := range flag.FindAllStringSubmatch(string(text), -1) {
			if !known[m[1]] && !slices.Contains(theirs["*"], m[1]) && !slices.Contains(theirs[filepath.Base(doc)], m[1]) {
				t.Errorf("%s names --%s, which no command has", doc, m[1])
			}
		}
	}
}

// TestHelp: every command has a short description, and its help ends with examples.
func TestHelp(t *testing.T) {
	t.Parallel()
	root := (&app{Streams: cli.Streams{In: strings.NewReader(""), Out: io.Discard, ErrOut: io.Discard}}).root()
	for _, c := range visible(root) {
		var help bytes.Buffer
		c.SetOut(&help)
		if err := c.Help(); err != nil {
			t.Fatal(err)
		}
		if c.Short == "" || c.Example == "" || !strings.HasSuffix(help.String(), "Examples:\n"+c.Example+"\n") {
			t.Errorf("%s: help must have a short text and end with examples", c.CommandPath())
		}
		for line := range strings.Lines(c.Example) {
			if line != "\n" && !strings.HasPrefix(line, "  ") {
				t.Errorf("%s: example is not indented by two blanks: %q", c.CommandPath(), line)
			}
		}
	}
}

// visible returns c and all commands below it that are not hidden.
func visible(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			all = append(all, visible(sub)...)
		}
	}
	return all
}
