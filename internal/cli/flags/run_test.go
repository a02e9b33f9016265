package flags

import (
	"strings"
	"testing"
)

func TestCgroupDriver(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		systemd bool
		refused string
	}{
		{"cgroupfs", false, ""}, {"cgroupfs", true, ""}, {"systemd", true, ""},
		{"systemd", false, "systemd does not run here"}, {"Systemd", true, "must be cgroupfs or systemd"}, {"", true, "must be"},
	} {
		got, err := cgroupDriver(c.name, c.systemd)
		if c.refused == "" && (err != nil || string(got) != c.name) || c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)) {
			t.Errorf("%q with systemd %v: %q, %v", c.name, c.systemd, got, err)
		}
	}
}
