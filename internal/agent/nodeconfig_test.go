package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"podrun.io/podrun/internal/runtime/containerd"
)

func TestNodeConfig(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"runtimeClasses:\n  a: {runtime: r, binaryName: b}\n": "",
		"":                                       "",
		"runtimeClasses:\n  a: {}\n":             "names neither runtime nor binaryName",
		"runtimeClasses:\n  a: {binary: crun}\n": "unknown field",
		"classes: {}\n":                          "unknown field",
		"- a\n":                                  "cannot unmarshal",
	} {
		path := filepath.Join(t.TempDir(), "node.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := ReadNodeConfig(path)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if want == "" && text != "" && c.Classes()["a"] != (containerd.RuntimeClass{Runtime: "r", Binary: "b"}) {
			t.Errorf("%q: %+v", text, c.Classes())
		}
	}
	if _, err := ReadNodeConfig("/no/such/file"); err == nil {
		t.Error("a file that is not there")
	}
}
