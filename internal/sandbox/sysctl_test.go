package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// TestMachinesSysctls: whatever let a parameter of the machine's through to here, it is not set. The values are those
// that the machine has.
func TestMachinesSysctls(t *testing.T) {
	needRoot(t)
	for _, c := range []struct {
		sysctl string
		spec   v1.PodSpec
	}{
		{"vm.max_map_count", v1.PodSpec{}},
		{"kernel.panic", v1.PodSpec{}},
		{"net.ipv4.ip_local_port_range", v1.PodSpec{HostNetwork: true}},
		{"kernel.shmmni", v1.PodSpec{HostIPC: true}},
	} {
		value, err := os.ReadFile(filepath.Join("/proc/sys", pod.SysctlFile(c.sysctl)))
		if err != nil {
			t.Fatal(err)
		}
		c.spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: c.sysctl, Value: strings.TrimSpace(string(value))}}}
		s := &Store{dir: directory{root: t.TempDir(), step: func(string) {}}}
		if err := s.setSysctls("sandbox", &v1.Pod{Spec: c.spec}, 0); err == nil || !strings.Contains(err.Error(), "the machine's") {
			t.Errorf("%s of %+v: %v", c.sysctl, c.spec, err)
		}
	}
}
