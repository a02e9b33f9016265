package vm

import (
	"bytes"
	"encoding/json"
	"errors"
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

// platform is a system that tests have passed on.
type platform struct {
	System     string `json:"system"`
	Kernel     string `json:"kernel"`
	Systemd    string `json:"systemd"`
	Containerd string `json:"containerd"`
	Runc       string `json:"runc"`
	Cgroup     string `json:"cgroup"`
	LSM        string `json:"lsm"`
	FileSystem string `json:"fileSystem"`
	// Tests has the day on which each test has passed last.
	Tests map[string]string `json:"tests"`
}

// facts prints the fields of platform, one a line, in their order.
const facts = `. /etc/os-release; echo "$PRETTY_NAME"; uname -r; systemctl --version | sed -n 's/^systemd \([0-9.]*\).*/\1/p'
	dpkg-query -W -f '${Version}\n' containerd; dpkg-query -W -f '${Version}\n' runc
	stat -fc %T /sys/fs/cgroup; cat /sys/kernel/security/lsm; echo; findmnt -no FSTYPE /`

// recordsTo is a directory to which tests that pass are recorded, with what they have passed on; "" for none.
func recordsTo() string { return os.Getenv("PODRUN_VM_RECORD") }

// record records that a test has passed, when it has.
func (m *machine) record() {
	if recordsTo() == "" {
		return
	}
	lines := strings.Split(m.sh(facts), "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool { return line == "" })
	if len(lines) != 8 {
		m.t.Fatalf("what this is is %q", lines)
	}
	now := platform{
		lines[0], lines[1], lines[2], lines[3], lines[4], lines[5], lines[6], lines[7], map[string]string{},
	}
	m.t.Cleanup(func() {
		if m.t.Failed() || m.t.Skipped() || testing.Short() {
			return
		}
		must(m.t, now.add(m.t.Name(), time.Now()))
	})
}

// add adds a test. If the platform has changed, as by an update of Debian's kernel, those that passed before say on what.
func (p platform) add(test string, at time.Time) error {
	name := strings.ToLower(strings.Fields(p.System)[0]) + "-" + numberIn(p.System) + ".json"
	file := filepath.Join(recordsTo(), name)
	before, err := readPlatform(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	former := before.without(p)
	for test, day := range before.Tests {
		if former != "" && !strings.Contains(day, "(") {
			day += " (" + former + ")"
		}
		p.Tests[test] = day
	}
	p.Tests[test] = at.UTC().Format(time.DateOnly)
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// without returns what p has and other has not.
func (p platform) without(other platform) string {
	var differ []string
	for _, f := range features {
		if was := f.of(p); was != f.of(other) {
			differ = append(differ, f.name+" "+was)
		}
	}
	return strings.Join(differ, ", ")
}

// features are the fields of platform that a test may depend on.
var features = []struct {
	name string
	of   func(platform) string
}{
	{"kernel", func(p platform) string { return p.Kernel }}, {"systemd", func(p platform) string { return p.Systemd }},
	{"Debian's containerd", func(p platform) string { return p.Containerd }}, {"runc", func(p platform) string { return p.Runc }},
	{"cgroups", func(p platform) string { return p.Cgroup }}, {"Linux security modules", func(p platform) string { return p.LSM }},
	{"file system", func(p platform) string { return p.FileSystem }},
}

// TestUpdatedPlatform: an update of Debian does not make a record wrong, nor forget it.
func TestUpdatedPlatform(t *testing.T) {
	t.Setenv("PODRUN_VM_RECORD", t.TempDir())
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	one := platform{System: "Debian GNU/Linux 99 (x)", Kernel: "1", Runc: "2"}
	for _, kernel := range []string{"1", "5", "6"} {
		one.Kernel, one.Tests = kernel, map[string]string{}
		must(t, one.add("TestOn"+kernel, at))
		at = at.AddDate(0, 0, 1)
	}
	one.Tests = map[string]string{}
	must(t, one.add("TestOn1", at))
	got, err := readPlatform(filepath.Join(recordsTo(), "debian-99.json"))
	must(t, err)
	want := map[string]string{"TestOn1": "2026-01-05", "TestOn5": "2026-01-03 (kernel 5)", "TestOn6": "2026-01-04"}
	if got.Kernel != "6" || !maps.Equal(got.Tests, want) {
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
		row(f.name, f.of)
	}
	out.WriteString("\nThe day on which each test has passed last, and on what if that was another version:\n\n")
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
		row(title+": "+purposes[name], func(p platform) string { return p.Tests[test] })
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
