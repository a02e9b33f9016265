package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"podrun.io/podrun/internal/runtime/containerd"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"runtimeClasses:\n  a: {runtime: r, binaryName: b}\n": "",
		"": "",
		"runtimeClasses:\n  a: {runtime: r, binaryName: b}\ndevices:\n  v.example/gpu: [v.example/gpu=0]\n": "",
		"devices: {gpu: []}\n":                              "must have a domain",
		"devices: {x.kubernetes.io/gpu: []}\n":              "must have a domain",
		"devices: {a/b/c: []}\n":                            "devices.a/b/c: ",
		"devices: {v.example/gpu: [gpu0]}\n":                "must be a device of CDI's",
		"devices: {v.example/gpu: [v/g=0, v/g=1, v/g=0]}\n": "v/g=0 is named twice",
		"runtimeClasses:\n  a: {}\n":                        "names neither runtime nor binaryName",
		"runtimeClasses:\n  a: {binary: crun}\n":            "unknown field",
		"classes: {}\n":                                     "unknown field",
		"runtimeClasses: {a: {runtime: r, binaryName: b}}\ncpuPolicy: none\nreservedCPUs: 0,2-3\n":   "",
		"runtimeClasses: {a: {runtime: r, binaryName: b}}\ncpuPolicy: static\nreservedCPUs: 0\n":     "",
		"runtimeClasses: {a: {runtime: r, binaryName: b}}\ncpuPolicy: static\nreservedCPUs: \"1\"\n": "",
		"cpuPolicy: static\n":                    "reservedCPUs: must have a CPU",
		"cpuPolicy: Static\nreservedCPUs: 0\n":   `cpuPolicy: "Static" must be none or static`,
		"reservedCPUs: 3-1\n":                    "reservedCPUs: ",
		"reservedCPUs: -1\n":                     "reservedCPUs: ",
		"cpuPolicy: static\nreservedCPUs: ''\n":  "reservedCPUs: must have a CPU",
		"cpuPolicy: static\nreservedCPUs: [0]\n": "reservedCPUs",
		"- a\n":                                  "must be an object, not a list",
	} {
		path := filepath.Join(t.TempDir(), "node.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := ReadConfig(path)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if want == "" && text != "" && c.Classes()["a"] != (containerd.RuntimeClass{Runtime: "r", Binary: "b"}) {
			t.Errorf("%q: %+v", text, c.Classes())
		}
	}
	// The document's example.
	doc, err := os.ReadFile("../../../docs/node-config.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(doc), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	path := filepath.Join(t.TempDir(), "node.yaml")
	if err := os.WriteFile(path, []byte(example), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := ReadConfig(path); err != nil || len(c.Devices["example.com/gpu"]) != 2 || len(c.Classes()) != 2 {
		t.Errorf("the document's: %+v, %v", c, err)
	}
	if _, err := ReadConfig("/no/such/file"); err == nil {
		t.Error("a file that is not there")
	}
}
