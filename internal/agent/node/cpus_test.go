package node

import (
	"io"
	"log/slog"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/cpuset"
)

func TestCPUs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ policy, reserved, all, want string }{
		{"static", "0", "0-3", ""},
		{"none", "0-1", "0-3", ""},
		{"", "", "0", ""},
		{"static", "4", "0-3", "reservedCPUs: 4: this machine has the CPUs 0-3"},
		{"none", "0-9", "0-3", "reservedCPUs: 4-9: this machine has the CPUs 0-3"},
		{"static", "0", "0", "reservedCPUs: 0 are all CPUs of this machine"},
		{"none", "0-3", "0-3", "reservedCPUs: 0-3 are all CPUs of this machine"},
	} {
		config := Config{CPUPolicy: c.policy}
		if c.reserved != "" {
			config.ReservedCPUs = new(intstr.Parse(c.reserved))
		}
		all, err := cpuset.Parse(c.all)
		if err != nil {
			t.Fatal(err)
		}
		got, err := config.of(all)
		switch {
		case c.want != "":
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v: %v", c, err)
			}
		case err != nil || !got.All.Equals(all) || got.Reserved.String() != c.reserved || got.Static != (c.policy == "static"):
			t.Errorf("%+v: %+v, %v", c, got, err)
		}
	}
	if got, err := (Config{}).CPUs(slog.New(slog.NewTextHandler(io.Discard, nil))); err != nil || got.Static || !got.Reserved.IsEmpty() {
		t.Errorf("this machine without a configuration: %+v, %v", got, err)
	}
}
