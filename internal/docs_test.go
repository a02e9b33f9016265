package internal_test

import (
	"bytes"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The documents' manifests are files of testdata, where they are loaded by tests.
func TestManifestsInDocumentsAreTested(t *testing.T) {
	var known []string
	files, err := filepath.Glob("../testdata/manifests/valid-*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("manifests: %v, %v", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		known = append(known, strings.TrimSpace(string(data)))
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	if len(shown) == 0 {
		t.Error("README.md shows no manifest")
	}
	for _, m := range shown {
		if !slices.Contains(known, strings.TrimSpace(m[1])) {
			t.Errorf("README.md has a manifest that is not in testdata/manifests:\n%s", m[1])
		}
	}
}

// Links between documents lead somewhere.
func TestLinksInDocuments(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	docs, err := filepath.Glob("../docs/*.md")
	if err != nil || len(docs) == 0 {
		t.Fatalf("documents: %v, %v", docs, err)
	}
	for _, doc := range append(docs, "../README.md", "../CONTRIBUTING.md") {
		data, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(data), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(doc), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", doc, m[1], err)
			}
		}
	}
}

// Make targets that CONTRIBUTING.md names exist, and none is left out.
func TestMakeTargetsAreDocumented(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	guide, err := os.ReadFile("../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	names := func(pattern string, text []byte) []string {
		var out []string
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
			if m[1] != "help" {
				out = append(out, m[1])
			}
		}
		slices.Sort(out)
		return out
	}
	targets, told := names(`(?m)^([a-z0-9]+):.*## `, makefile), names("(?m)^\\| `make ([a-z0-9]+)`", guide)
	if !slices.Equal(targets, told) {
		t.Errorf("Makefile has %v, CONTRIBUTING.md %v", targets, told)
	}
}

// Every line of the threat model and of the table of faults names tests, and each of them is there.
func TestSecurityAndFaultsAreTested(t *testing.T) {
	text, err := os.ReadFile("../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	more, err := os.ReadFile("../docs/housekeeping.md")
	if err != nil {
		t.Fatal(err)
	}
	_, faults, _ := bytes.Cut(more, []byte("\n## Faults\n"))
	text = append(text, faults...)
	known := map[string]bool{}
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.test {
				known[f.Name.Name] = true
			}
		}
	}
	name := regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`")
	lines, within := 0, false
	for line := range strings.Lines(string(text)) {
		header := strings.HasPrefix(line, "| What could go wrong |") || strings.HasPrefix(line, "| what was broken |")
		if within = header || within && strings.HasPrefix(line, "|"); !within || header || strings.HasPrefix(line, "| ---") {
			continue
		}
		lines++
		tests := name.FindAllStringSubmatch(line, -1)
		if len(tests) == 0 {
			t.Errorf("no test: %s", line)
		}
		for _, m := range tests {
			if !known[m[1]] {
				t.Errorf("there is no %s: %s", m[1], line)
			}
		}
	}
	if lines < 20 {
		t.Errorf("only %d lines", lines)
	}
}

// Every metric is in the document that says what they mean.
func TestMetricsAreDocumented(t *testing.T) {
	told, err := os.ReadFile("../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile("^\"(podrun|kubelet|kube|container|pod|node)(_[a-z]+)+\"$")
	found := 0
	for _, s := range sources(t) {
		if s.dir != "internal/server/metrics" || s.test {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			text, ok := n.(*ast.BasicLit)
			if !ok || !name.MatchString(text.Value) || text.Value == `"container_state"` {
				return true
			}
			found++
			if metric := strings.Trim(text.Value, `"`); !bytes.Contains(told, []byte("`"+metric)) {
				s.errorf(t, n.Pos(), "docs/http.md does not tell of %s", metric)
			}
			return true
		})
	}
	if found < 20 {
		t.Errorf("only %d metrics found", found)
	}
}
