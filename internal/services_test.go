package internal_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestServiceFiles: what starts podrun as a service runs the binary where docs/start.md installs it, and the unit
// reads the settings that the package ships, which may be secret.
func TestServiceFiles(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile("../" + path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if !strings.Contains(read("docs/start.md"), "install bin/podrun /usr/local/bin/") {
		t.Error("docs/start.md installs podrun elsewhere")
	}
	binary := regexp.MustCompile(`/[a-z/]*/podrun\b["\n ]`)
	for path, line := range map[string]string{
		"podrun.service": "ExecStart=/usr/local/bin/podrun serve\n", "packaging/openrc": "command=/usr/local/bin/podrun\n",
		"packaging/s6-run": "exec /usr/local/bin/podrun serve ",
	} {
		if text := read(path); !strings.Contains(text, "\n"+line) {
			t.Errorf("%s does not have %q but %q", path, line, binary.FindAllString(text, -1))
		}
	}
	if !strings.Contains(read("podrun.service"), "\nEnvironmentFile=-/etc/default/podrun\n") ||
		!strings.Contains(read("packaging/nfpm.yaml"), "dst: /etc/default/podrun, type: config|noreplace, file_info: {mode: 0600}}") {
		t.Error("the unit and the package do not agree on the file of settings")
	}
}
