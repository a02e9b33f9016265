package vm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// facts are what a test may depend on.
type facts struct {
	Kernel     string `json:"kernel"`
	Systemd    string `json:"systemd"`
	Containerd string `json:"containerd"`
	Runc       string `json:"runc"`
	Cgroup     string `json:"cgroup"`
	LSM        string `json:"lsm"`
	FileSystem string `json:"fileSystem"` // of podrun's data
}

// platform is a system that tests have run on.
type platform struct {
	System string            `json:"system"`
	facts                    // of the last test, as it began
	Tests  map[string]result `json:"tests"`
}

// result is what became of a test at last.
type result struct {
	Day string `json:"day"`
	// Version is podrun's package.
	Version string `json:"version,omitempty"`
	// Note is how far it went, or why it cannot pass there.
	Note  string `json:"note,omitempty"`
	facts        // as it ended
}

// theseFacts prints the system's name and the fields of facts, one a line.
const theseFacts = `. /etc/os-release; echo "$PRETTY_NAME"; uname -r; systemctl --version | sed -n 's/^systemd \([0-9.]*\).*/\1/p'
	dpkg-query -W -f '${Version}\n' containerd; dpkg-query -W -f '${Version}\n' runc
	stat -fc %T /sys/fs/cgroup; cat /sys/kernel/security/lsm; echo; findmnt -no FSTYPE -T /var/lib/podrun || findmnt -no FSTYPE -T /var/lib`

// recordsTo is a directory to which tests that pass are recorded, with what they have passed on; "" for none.
func recordsTo() string { return os.Getenv("PODRUN_VM_RECORD") }

// facts reads what the machine is now.
func (m *machine) facts() (system string, f facts) {
	m.t.Helper()
	lines := strings.Split(m.sh(theseFacts), "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool { return line == "" })
	if len(lines) != 8 {
		m.t.Fatalf("what this is is %q", lines)
	}
	return lines[0], facts{lines[1], lines[2], lines[3], lines[4], lines[5], lines[6], lines[7]}
}

// record records that a test has passed, when it has, or why it was skipped.
func (m *machine) record() {
	if recordsTo() == "" {
		return
	}
	system, now := m.facts()
	version := m.sh(`dpkg-query -W -f '${Version}' podrun`)
	m.t.Cleanup(func() {
		if m.t.Failed() || testing.Short() || m.t.Skipped() && m.remark == "" {
			return
		}
		r := result{Day: time.Now().UTC().Format(time.DateOnly), Version: version, Note: m.remark, facts: now}
		if m.t.Skipped() {
			r.Day, r.Version = "", ""
		}
		if !m.ended() {
			_, r.facts = m.facts()
		}
		must(m.t, platform{System: system, facts: now}.add(m.t.Name(), r))
	})
}

// skip skips a test that cannot pass on this system.
func (m *machine) skip(why string) {
	m.t.Helper()
	m.remark = why
	m.t.Skip(why)
}

// add adds a test's result to what is recorded of the platform.
func (p platform) add(test string, r result) error {
	name := strings.ToLower(strings.Fields(p.System)[0]) + "-" + numberIn(p.System) + ".json"
	file := filepath.Join(recordsTo(), name)
	before, err := readPlatform(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	p.Tests = map[string]result{}
	maps.Copy(p.Tests, before.Tests)
	p.Tests[test] = r
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// of returns a test's result in words, with what it ran on if that was not what the platform is.
func (p platform) of(test string) string {
	r, is := p.Tests[test]
	switch {
	case !is:
		return "not run"
	case r.Day == "":
		return "cannot pass: " + r.Note
	}
	var more []string
	for _, f := range features {
		if was := f.of(r.facts); was != "" && was != f.of(p.facts) {
			more = append(more, f.name+" "+was)
		}
	}
	if r.Note != "" {
		more = append(more, r.Note)
	}
	text := r.Day
	if _, commit, is := strings.Cut(r.Version, ".g"); is {
		text += ", " + commit[:min(8, len(commit))]
	}
	if len(more) > 0 {
		text += " (" + strings.Join(more, "; ") + ")"
	}
	return text
}

// features are the fields of facts.
var features = []struct {
	name string
	of   func(facts) string
}{
	{"kernel", func(f facts) string { return f.Kernel }}, {"systemd", func(f facts) string { return f.Systemd }},
	{"Debian's containerd", func(f facts) string { return f.Containerd }}, {"runc", func(f facts) string { return f.Runc }},
	{"cgroups", func(f facts) string { return f.Cgroup }}, {"Linux security modules", func(f facts) string { return f.LSM }},
	{"file system", func(f facts) string { return f.FileSystem }},
}

// TestUpdatedPlatform: an update of Debian does not make a record wrong, nor forget it; a test of another kind of system
// says so.
func TestUpdatedPlatform(t *testing.T) {
	t.Setenv("PODRUN_VM_RECORD", t.TempDir())
	one := platform{System: "Debian GNU/Linux 99 (x)", facts: facts{Kernel: "1", LSM: "a"}}
	for i, kernel := range []string{"1", "5", "6"} {
		one.Kernel = kernel
		must(t, one.add("TestOn"+kernel, result{Day: fmt.Sprint("2026-01-0", i+1), Version: "0.0.0~1.g4664dce33e91", facts: one.facts}))
	}
	must(t, one.add("TestOn1", result{Day: "2026-01-05", Note: "5 rounds", facts: one.facts}))
	must(t, one.add("TestSkipped", result{Note: "it has no labels", facts: one.facts}))
	must(t, one.add("TestLSM", result{Day: "2026-01-06", facts: facts{Kernel: "6", LSM: "b"}}))
	got, err := readPlatform(filepath.Join(recordsTo(), "debian-99.json"))
	must(t, err)
	want := map[string]string{
		"TestOn1": "2026-01-05 (5 rounds)", "TestOn5": "2026-01-02, 4664dce3 (kernel 5)", "TestOn6": "2026-01-03, 4664dce3",
		"TestSkipped": "cannot pass: it has no labels", "TestLSM": "2026-01-06 (Linux security modules b)", "TestNever": "not run",
	}
	for test, want := range want {
		if is := got.of(test); is != want {
			t.Errorf("%s: %q, want %q", test, is, want)
		}
	}
	if got.Kernel != "6" {
		t.Errorf("%+v", got)
	}
}

func numberIn(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r < '0' || r > '9' }), ".")
}

func readPlatform(file string) (p platform, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return p, err
	}
	return p, json.Unmarshal(text, &p)
}

// TestPlatforms: docs/platforms.md has what testdata/platforms records. PODRUN_UPDATE=1 writes it.
func TestPlatforms(t *testing.T) {
	files, err := filepath.Glob("testdata/platforms/*.json")
	must(t, err)
	var all []platform
	for _, file := range files {
		p, err := readPlatform(file)
		must(t, err)
		all = append(all, p)
	}
	want := page(all, purposes(t))
	const file = "../docs/platforms.md"
	if os.Getenv("PODRUN_UPDATE") == "1" {
		must(t, os.WriteFile(file, want, 0o644))
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
		t.Errorf("docs/platforms.md is not what testdata/platforms has: PODRUN_UPDATE=1 go test ./vm -run TestPlatforms; %v", err)
	}
}

// page returns docs/platforms.md.
func page(all []platform, purposes map[string]string) []byte {
	var out bytes.Buffer
	out.WriteString(`# Platforms

What was run on whole machines in qemu, with podrun from its package: ` + "`make vm`" + `, which records what passes. This
page is made from that record. All other tests run on a kernel of their own machine, mostly in a container without
systemd, some on Debian's containerd.

`)
	row := func(name string, of func(platform) string) {
		out.WriteString("| " + name + " |")
		for _, p := range all {
			out.WriteString(" " + of(p) + " |")
		}
		out.WriteByte('\n')
	}
	row("", func(p platform) string { return p.System })
	row("---", func(platform) string { return "---" })
	for _, f := range features {
		row(f.name, func(p platform) string { return f.of(p.facts) })
	}
	out.WriteString("\nThe day on which each test has passed last, with which commit, and on what if that was not the above:\n\n")
	tests := map[string]bool{}
	for _, p := range all {
		for test := range p.Tests {
			tests[test] = true
		}
	}
	row("", func(p platform) string { return p.System })
	row("---", func(platform) string { return "---" })
	for _, test := range slices.Sorted(maps.Keys(tests)) {
		name, part, _ := strings.Cut(test, "/")
		title := "`" + name + "`"
		if part != "" {
			title += ", " + strings.ReplaceAll(part, "_", " ")
		}
		row(title+": "+purposes[name], func(p platform) string { return p.of(test) })
	}
	return out.Bytes()
}

// purposes returns what each test of this package is for: its comment, in one line.
func purposes(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	must(t, err)
	out := map[string]string{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		must(t, err)
		for _, d := range parsed.Decls {
			f, is := d.(*ast.FuncDecl)
			if !is || f.Doc == nil {
				continue
			}
			if _, text, is := strings.Cut(f.Doc.Text(), f.Name.Name+": "); is {
				out[f.Name.Name] = strings.Join(strings.Fields(text), " ")
			}
		}
	}
	return out
}
