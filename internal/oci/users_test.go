package oci

import (
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"
)

func ownUsers(in *Input) {
	in.Pod.Spec.HostUsers = new(false)
	in.Namespaces.User, in.Namespaces.FirstUser = "/run/sandboxes/s/user", 0x80000
}

// userCases returns inputs for whole specs of pods with a user namespace.
func userCases() map[string]Input {
	return map[string]Input{
		"own-users":          input(ownUsers),
		"own-users-unmasked": secured(nil, &v1.SecurityContext{ProcMount: new(v1.UnmaskedProcMount)}, ownUsers),
	}
}

func TestOwnUsers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(in *Input)
		want   string
	}{
		{"the last user", func(in *Input) { in.User = specs.User{UID: 65535, GID: 65535} }, ""},
		{"a user too many", func(in *Input) { in.User.UID = 65536 }, "user or group 65536 is not among the pod's own"},
		{"a group too many", func(in *Input) { in.User.GID = 70000 }, "user or group 70000"},
		{"another group", func(in *Input) {
			in.Pod.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroups: []int64{80000}}
		}, "user or group 80000"},
		{"the volumes' group", func(in *Input) { in.Pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(90000))} }, "user or group 90000"},
		{"no namespace", func(in *Input) { in.Namespaces.User = "" }, "the pod's user namespace is missing"},
	} {
		_, err := Build(input(ownUsers, c.change))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
