package oci

import (
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"
)

// machine returns a machine with two devices, 15 capabilities and distinguishable profiles.
func machine() Machine {
	return Machine{
		Memory: 1 << 30, LowestOOMScoreAdj: -1000,
		Capabilities: append(defaultCapabilities(), "CAP_SYS_ADMIN"),
		Devices:      []specs.LinuxDevice{{Path: "/dev/fuse", Type: "c", Major: 10, Minor: 229}},
		DefaultSeccomp: func(s *specs.Spec) *specs.LinuxSeccomp {
			action := specs.ActErrno
			if slices.Contains(s.Process.Capabilities.Bounding, "CAP_SYS_ADMIN") {
				action = specs.ActAllow
			}
			return &specs.LinuxSeccomp{DefaultAction: action}
		},
		LocalhostSeccomp: &specs.LinuxSeccomp{DefaultAction: specs.ActLog},
	}
}

// secured returns an input whose pod and container have these security contexts.
func secured(pod *v1.PodSecurityContext, container *v1.SecurityContext, change ...func(in *Input)) Input {
	return input(append([]func(in *Input){func(in *Input) {
		in.Pod.Spec.SecurityContext, in.Container.SecurityContext = pod, container
		in.Machine = machine()
	}}, change...)...)
}

func securityCases() map[string]Input {
	runtimeDefault := &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault}
	return map[string]Input{
		"restricted": secured(&v1.PodSecurityContext{
			RunAsNonRoot: new(true), SupplementalGroups: []int64{4000, 27}, FSGroup: new(int64(5000)), SeccompProfile: runtimeDefault,
		}, &v1.SecurityContext{
			RunAsUser: new(int64(1000)), AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
			Capabilities: &v1.Capabilities{Drop: []v1.Capability{"ALL"}, Add: []v1.Capability{"net_bind_service"}},
		}, func(in *Input) { in.User = specs.User{UID: 1000, GID: 1000, AdditionalGids: []uint32{1000, 27}} }),
		"privileged": secured(&v1.PodSecurityContext{SeccompProfile: runtimeDefault}, &v1.SecurityContext{Privileged: new(true)},
			func(in *Input) { in.Machine.AppArmorProfile = "unconfined" }),
		"seccomp-localhost": secured(&v1.PodSecurityContext{SeccompProfile: runtimeDefault}, &v1.SecurityContext{
			SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost, LocalhostProfile: new("x.json")},
		}),
		"seccomp-by-default": secured(nil, &v1.SecurityContext{Capabilities: &v1.Capabilities{Add: []v1.Capability{"SYS_ADMIN"}}},
			func(in *Input) { in.Machine.SeccompByDefault = true }),
		"apparmor": secured(nil, nil, func(in *Input) { in.Machine.AppArmorProfile = "podrun-default" }),
		"selinux": secured(nil, nil, func(in *Input) {
			in.Machine.ProcessLabel, in.Machine.FileLabel = "system_u:system_r:container_t:s0:c1,c2", "system_u:object_r:container_file_t:s0:c1,c2"
		}),
		"groups-strict": secured(&v1.PodSecurityContext{
			SupplementalGroups: []int64{7}, SupplementalGroupsPolicy: new(v1.SupplementalGroupsPolicyStrict),
		}, nil, func(in *Input) { in.User = specs.User{UID: 1, GID: 2, AdditionalGids: []uint32{2, 27}} }),
	}
}

func TestCapabilities(t *testing.T) {
	t.Parallel()
	all := append(defaultCapabilities(), "CAP_SYS_ADMIN")
	for _, c := range []struct{ name, add, drop, want string }{
		{"one more", "NET_ADMIN", "", "+CAP_NET_ADMIN"},
		{"with its prefix", "CAP_NET_ADMIN", "CAP_CHOWN", "+CAP_NET_ADMIN -CAP_CHOWN"},
		{"one that is there", "CHOWN", "", ""},
		{"all", "ALL", "", "+CAP_SYS_ADMIN"},
		{"all but one", "all", "KILL", "+CAP_SYS_ADMIN -CAP_KILL"},
		{"none but one", "KILL", "ALL", "CAP_KILL"},
		{"all and none", "ALL", "ALL", "nothing"},
		{"added and dropped", "KILL", "KILL", "-CAP_KILL"},
		{"a misspelt one dropped", "", "KILLS", `there is no capability "KILLS"`},
		{"a misspelt one added", "CAP_CAP_KILL", "", `there is no capability "CAP_CAP_KILL"`},
	} {
		list := func(s string) (out []v1.Capability) {
			for _, name := range strings.Fields(s) {
				out = append(out, v1.Capability(name))
			}
			return out
		}
		got, err := capabilities(v1.SecurityContext{Capabilities: &v1.Capabilities{Add: list(c.add), Drop: list(c.drop)}}, all)
		if text := changes(got, err); text != c.want {
			t.Errorf("%s: %s, want %s", c.name, text, c.want)
		}
	}
}

// changes formats a set of capabilities as the difference to the default, or as it is if it is
// small.
func changes(got []string, err error) string {
	if err != nil {
		return err.Error()
	}
	if len(got) < 3 {
		if len(got) == 0 {
			return "nothing"
		}
		return strings.Join(got, " ")
	}
	var out []string
	for _, name := range got {
		if !slices.Contains(defaultCapabilities(), name) {
			out = append(out, "+"+name)
		}
	}
	for _, name := range defaultCapabilities() {
		if !slices.Contains(got, name) {
			out = append(out, "-"+name)
		}
	}
	return strings.Join(out, " ")
}

func TestUserName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		image       string
		user, group *int64
		want        string
	}{
		{"", nil, nil, "0"}, {"app", nil, nil, "app"}, {"app:staff", nil, nil, "app:staff"},
		{"app:staff", new(int64(5)), nil, "5"}, {"app:staff", nil, new(int64(6)), "app:6"},
		{"app", new(int64(5)), new(int64(6)), "5:6"}, {"", nil, new(int64(6)), "0:6"}, {"7", new(int64(0)), nil, "0"},
	} {
		got := UserName(&v1.Pod{Spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{RunAsGroup: c.group}}},
			&v1.Container{SecurityContext: &v1.SecurityContext{RunAsUser: c.user}}, c.image)
		if got != c.want {
			t.Errorf("image %q: got %s, want %s", c.image, got, c.want)
		}
	}
}

func TestRunAsNonRoot(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		image string
		user  *int64
		want  string // the beginning of the error; "" for none
	}{
		{"1000", nil, ""}, {"1000:0", nil, ""}, {"root", new(int64(1)), ""},
		{"", nil, "runAsNonRoot is set, but the image runs as root"},
		{"0:1000", nil, "runAsNonRoot is set, but the image runs as root"},
		{"00", nil, "runAsNonRoot is set, but the image runs as root"},
		{"app", nil, `runAsNonRoot is set, but the image's user "app" is not a number`},
		{"1000", new(int64(0)), "runAsNonRoot is set, but runAsUser is 0"},
	} {
		_, err := Build(secured(&v1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: c.user}, nil,
			func(in *Input) { in.Image.User = c.image }))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("image %q: %v, want %q", c.image, err, c.want)
		}
	}
}
