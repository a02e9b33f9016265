package cmd

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	imagespec "github.com/opencontainers/image-spec/specs-go/v1"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/test"
	"podrun.io/podrun/internal/test/testimage"
)

// TestImagesOnTerminal: no control character in the name of an image or in another text of an
// archive reaches a terminal, nor a line that only such a text has made. Other programs get names as
// they are.
func TestImagesOnTerminal(t *testing.T) {
	r := startReal(t, "exec sleep 1000")
	const title, line, bidi = "a\x1b]0;title\a\x1b[2J\r", "b\nforged line\n\tmore", "c\u202eevil\u009b2J\x7f"
	names := []string{title, line, bidi}
	named := func(name string) func(*imagespec.Descriptor) {
		return func(d *imagespec.Descriptor) {
			d.Annotations = map[string]string{"io.containerd.image.name": name}
		}
	}
	good := hostileArchive(t, named(title), named(line), named(bidi))
	other := func(d *imagespec.Descriptor) {
		named("d\x1b[31m\nforged line")(d)
		d.Platform = &imagespec.Platform{OS: "linux\x1b[2J", Architecture: "s390x"}
	}
	missing := func(d *imagespec.Descriptor) {
		named("e\x1b[31m\nforged line")(d)
		d.Digest = d.Digest[:len(d.Digest)-8] + "00000000"
	}
	digest := func(d *imagespec.Descriptor) {
		named("f\x1b[31m")(d)
		d.Digest = "sha256:\x1b[2J\a"
	}
	mediaType := func(d *imagespec.Descriptor) {
		named("g\x1b[31m")(d)
		d.MediaType = "application/\x1b[2J\a"
	}
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(map[string]any{"errors": []map[string]string{{"code": "DENIED", "message": "no\x1b[2J\a"}}})
	}))
	defer hub.Close()
	used := r.pod.Spec.Containers[0].Image

	onTerminal := func(code int, shown string, args ...string) {
		t.Helper()
		terminal, written := test.Terminal(t, 200, 50)
		r.app.Out, r.app.ErrOut = terminal, terminal
		got := r.app.exit(r.run(args...))
		text := written()
		own := strings.NewReplacer("\r\x1b[K", "", "error: ", "") // of the progress of a pull
		for line := range strings.Lines(own.Replace(text)) {
			acts := func(c rune) bool { return unicode.IsControl(c) || unicode.Is(unicode.Cf, c) }
			if line = strings.TrimSuffix(line, "\n"); strings.ContainsFunc(line, acts) || strings.HasPrefix(line, "forged") {
				t.Errorf("%q prints %q", args, text)
			}
		}
		if got != code || !strings.Contains(text, shown) {
			t.Errorf("%q: exit code %d, %q; want %d, %q", args, got, text, code, shown)
		}
	}
	// Other programs get the names as they are.
	asData := func(want []string, args ...string) {
		t.Helper()
		out := &test.Buffer{}
		r.app.Out, r.app.ErrOut = out, &test.Buffer{}
		if code := r.app.exit(r.run(args...)); code != 0 || out.String() != strings.Join(want, "\n")+"\n" {
			t.Errorf("%q: exit code %d, %q, want %q", args, code, out.String(), want)
		}
	}

	onTerminal(0, `a\x1b]0;title\x07\x1b[2J\x0d`+"\n", "images", "load", good)
	onTerminal(0, `b\x0aforged line\x0a\x09more `, "images")
	onTerminal(0, `c\u202eevil\x9b2J\x7f `, "images", "list")
	for _, c := range []struct {
		archive string
		shown   string
	}{
		{hostileArchive(t, other), `"d\x1b[31m\nforged line"`},
		{hostileArchive(t, missing), `"e\x1b[31m\nforged line"`},
		{hostileArchive(t, digest), ""}, {hostileArchive(t, mediaType), ""},
		{filepath.Join(t.TempDir(), "none\x1b[2J"), `none\x1b[2J`},
	} {
		onTerminal(exitOfLoad(c.archive), c.shown, "images", "load", c.archive)
	}
	onTerminal(cli.ExitFailed, `"none\x1b[2J"`, "images", "rm", "none\x1b[2J")
	onTerminal(cli.ExitFailed, `none\x1b[2J`, "images", "pull", "none\x1b[2J")
	onTerminal(cli.ExitFailed, `no\x1b[2J\x07`, "images", "pull", strings.TrimPrefix(hub.URL, "http://")+"/a:1")
	onTerminal(cli.ExitFailed, "is made of it", "images", "rm", used)
	onTerminal(0, `b\x0aforged line\x0a\x09more`+"\n", "images", "rm", line)
	onTerminal(0, `a\x1b]0;title\x07\x1b[2J\x0d`+"\n", "images", "prune")

	asData(names, "images", "load", good)
	asData([]string{line}, "images", "rm", line)
	asData([]string{title, bidi}, "images", "prune")
}

// TestValidateOnTerminal: no control character in a manifest reaches a terminal, whatever the form of output.
func TestValidateOnTerminal(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	must(t, os.WriteFile(file, []byte("{apiVersion: v1, kind: Pod, \"a\\e[2J\\u202e\\x9b2J\": b}\n"), 0o600))
	for _, form := range []string{"text", "json"} {
		terminal, written := test.Terminal(t, 200, 50)
		a := &app{Streams: cli.Streams{In: strings.NewReader(""), Out: terminal, ErrOut: terminal}}
		root := a.root()
		root.SetArgs([]string{"validate", "-o", form, file})
		code := a.exit(root.ExecuteContext(t.Context()))
		text := written()
		acts := func(c rune) bool { return c != '\n' && (unicode.IsControl(c) || unicode.Is(unicode.Cf, c)) }
		if code != cli.ExitFailed || strings.ContainsFunc(text, acts) || !strings.Contains(text, `\u202e`) {
			t.Errorf("%s: exit code %d, %q", form, code, text)
		}
	}
}

// TestPodsOnTerminal: no control character that a container or a manifest has put into a status reaches a terminal, whatever
// the form of output; other programs get it as it is.
func TestPodsOnTerminal(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "status"), 0o700))
	const hostile = `a\u001b]0;title\u0007\u001b[2J\r\u202e`
	must(t, os.WriteFile(filepath.Join(dir, "status", "default_web-n.json"), []byte(`{"metadata": {"name": "web-n", "namespace": "default",
		"annotations": {"note": "`+hostile+`"}}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i", "command": ["`+hostile+`"]}]},
		"status": {"phase": "Failed", "reason": "Error", "message": "`+hostile+`", "containerStatuses": [{"name": "c",
		"state": {"terminated": {"exitCode": 1, "reason": "Error", "message": "`+hostile+`"}}}]}}`), 0o600))
	flags := []string{"--run-dir", dir, "--root-dir", t.TempDir(), "--log-dir", t.TempDir()}
	run := func(to *os.File, out io.Writer, args ...string) int {
		a := &app{Streams: cli.Streams{In: strings.NewReader(""), Out: out, ErrOut: out}}
		if to != nil {
			a.Out, a.ErrOut = to, to
		}
		root := a.root()
		root.SetArgs(append(args, flags...))
		return a.exit(root.ExecuteContext(t.Context()))
	}
	for _, args := range [][]string{
		{"get", "pods"}, {"get", "pods", "-o", "wide"}, {"get", "pods", "-o", "yaml"}, {"get", "pods", "-o", "json"}, {"get", "all"},
		{"get", "pods", "-o", "jsonpath={.items[*].metadata.annotations.note}"}, {"get", "pods", "-o", "manifest"},
		{"get", "pods", "-o", "custom-columns=NOTE:.metadata.annotations.note"}, {"describe", "pod", "web"},
		{"get", "pods", "-o", `go-template={{range .items}}{{.status.message}}{{end}}`},
	} {
		terminal, written := test.Terminal(t, 200, 50)
		code := run(terminal, nil, args...)
		text := written()
		acts := func(c rune) bool { return c != '\n' && (unicode.IsControl(c) || unicode.Is(unicode.Cf, c)) }
		colours := regexp.MustCompile("\x1b\\[[0-9]+m") // podrun's own
		if code != 0 || text == "" || strings.ContainsFunc(colours.ReplaceAllString(text, ""), acts) {
			t.Errorf("%q: exit code %d, %q", args, code, text)
		}
	}
	var out bytes.Buffer
	if run(nil, &out, "get", "pod", "web", "-o", "jsonpath={.metadata.annotations.note}"); !strings.HasPrefix(out.String(), "a\x1b]0;title\a\x1b[2J\r\u202e") {
		t.Errorf("to a program: %q", out.String())
	}
}

// exitOfLoad returns the exit code of loading an archive that cannot be loaded.
func exitOfLoad(archive string) int {
	if _, err := os.Stat(archive); err != nil {
		return cli.ExitUsage
	}
	return cli.ExitFailed
}

// hostileArchive returns an archive whose index has an image for each of the changes.
func hostileArchive(t *testing.T, changes ...func(*imagespec.Descriptor)) string {
	t.Helper()
	dir := t.TempDir()
	path, err := testimage.Busybox(dir, "busybox:2", testimage.Env("HOSTILE="+strings.Repeat("x", len(changes))))
	must(t, err)
	data, err := os.ReadFile(path)
	must(t, err)
	var out bytes.Buffer
	from, to := tar.NewReader(bytes.NewReader(data)), tar.NewWriter(&out)
	for {
		h, err := from.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		data, err := io.ReadAll(from)
		must(t, err)
		if h.Name == "index.json" {
			var index imagespec.Index
			must(t, json.Unmarshal(data, &index))
			image := index.Manifests[0]
			index.Manifests = nil
			for _, change := range changes {
				one := image
				change(&one)
				index.Manifests = append(index.Manifests, one)
			}
			data, err = json.Marshal(index)
			must(t, err)
		}
		h.Size = int64(len(data))
		must(t, to.WriteHeader(h))
		_, err = to.Write(data)
		must(t, err)
	}
	must(t, to.Close())
	path = filepath.Join(dir, "hostile.tar")
	must(t, os.WriteFile(path, out.Bytes(), 0o600))
	return path
}
