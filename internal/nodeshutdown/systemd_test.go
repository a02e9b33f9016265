package nodeshutdown

import (
	"os"
	"path/filepath"
	"testing"
)

func TestStopping(t *testing.T) {
	for _, tt := range []struct {
		name, systemctl string
		want, wantErr   bool
	}{
		{"stopping", `[ "$*" = is-system-running ] || exit 9; echo stopping; exit 1`, true, false},
		{"running", "echo running", false, false},
		{"degraded", "echo degraded; exit 1", false, false},
		{"no systemd", "echo offline; exit 1", false, false},
		{"failed", "echo stopping >&2; exit 1", false, true},
		{"no systemctl", "", false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("PATH", dir)
			if tt.systemctl != "" {
				script := "#!/bin/sh\n" + tt.systemctl + "\n"
				if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte(script), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := Stopping(t.Context()); got != tt.want || (err != nil) != tt.wantErr {
				t.Errorf("got %v, %v; want %v", got, err, tt.want)
			}
		})
	}
}
