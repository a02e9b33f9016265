package registryhosts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/remotes/docker/config"
)

// TestInvalid checks that an invalid hosts.toml file is an error that names it, and that other directories are none.
func TestInvalid(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"server = \"https://mirror.example\"\n": "",
		"":                                      "",
		"[host.\"https://mirror.example\"]\ncapabilities = \"pull\"\n":           "Capabilities",
		"[host.\"https://mirror.example\"]\ncapabilities = [\"pul\"]\n":          "unknown capability pul",
		"[host.\"https://mirror.example\"]\nclient = 1\n":                        "client",
		"[host.\"https://mirror.example\"\n":                                     "toml",
		"[host.\"https://mirror.example\"]\ndial_timeout = \"soon\"\n":           "soon",
		"[host.\"https://mirror.example\"]\nskip_verify = true\n# a comment\n":   "",
		"server = \"https://mirror.example\"\n[header]\nx-secret = [\"a\", 1]\n": "string",
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "hosts.toml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		options := config.HostOptions{HostDir: func(string) (string, error) { return dir, nil }}
		hosts, err := Bounded(t.Context(), options)("registry.example")
		switch {
		case want == "" && (err != nil || len(hosts) == 0):
			t.Errorf("%q: %v, %v", text, hosts, err)
		case want != "" && (err == nil || len(hosts) > 0 || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v, %v", text, hosts, err)
		}
	}
}
