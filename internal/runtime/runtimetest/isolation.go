package runtimetest

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/runtime"
)

// testSecurity starts a container under a security context, and one under a context that cannot be held.
func testSecurity(t *testing.T, s subject) {
	if !s.Runs {
		t.Skip("commands do not run in this runtime")
	}
	p := s.newPod("web-node", "uid-security", "main", "root")
	p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: new(int64(0)), RunAsGroup: new(int64(9)), SupplementalGroups: []int64{8}}
	p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{
		RunAsUser: new(int64(7)), RunAsNonRoot: new(true), AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
		Capabilities:   &v1.Capabilities{Drop: []v1.Capability{"ALL"}},
		SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault},
	}
	p.Spec.Containers[0].Command = []string{"sleep", "1000"}
	p.Spec.Containers[1].SecurityContext = &v1.SecurityContext{RunAsNonRoot: new(true)}
	start := s.ready(t, p)
	c := s.start(t, start)
	if got := s.output(t, c.ID, "id -u; id -g; id -G"); got != "7\n9\n9 8" {
		t.Errorf("ids %q", got)
	}
	if got := s.output(t, c.ID, "grep -E 'NoNewPrivs|Seccomp:|CapBnd' /proc/1/status"); got != "CapBnd:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2" {
		t.Errorf("status %q", got)
	}
	if s.exec(t, c.ID, "touch /tmp/x") == 0 {
		t.Error("the root filesystem can be written to")
	}
	start.Container = &p.Spec.Containers[1]
	var reason *runtime.ReasonError
	if err := s.StartContainer(t.Context(), start); !errors.As(err, &reason) || reason.Reason != "CreateContainerConfigError" {
		t.Errorf("root where nobody may be: %v", err)
	}
	if o := s.look(t, p); len(o.Containers) != 1 {
		t.Errorf("it left something: %+v", o.Containers)
	}
	s.remove(t, p)
}
