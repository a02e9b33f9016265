package main

import (
	"encoding/json"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestEscapes checks that escapes reports the privileges of pods that are not restricted, and none
// for a restricted pod.
func TestEscapes(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		`{"containers":[{"name":"c"}]}`:                                                              "has CAP_CHOWN, may gain privileges, has no seccomp profile, is the machine's root",
		`{"initContainers":[{"name":"c","securityContext":{"privileged":true}}]}`:                    "has CAP_SYS_ADMIN, sees /proc/kcore, writes /proc/sys, has devices, may use devices, has the mount /sys",
		`{"hostPID":true,"containers":[{"name":"c"}]}`:                                               "is in the machine's pid namespace",
		`{"hostIPC":true,"containers":[{"name":"c"}]}`:                                               "is in the machine's ipc namespace",
		`{"hostNetwork":true,"containers":[{"name":"c"}]}`:                                           "is in the machine's network namespace, is in the machine's uts namespace",
		`{"hostUsers":false,"containers":[{"name":"c","securityContext":{"procMount":"Unmasked"}}]}`: "sees /proc/kcore, writes /proc/sysrq-trigger",
	} {
		var p v1.Pod
		if err := json.Unmarshal([]byte(spec), &p.Spec); err != nil {
			t.Fatal(err)
		}
		p.UID = "u"
		got := strings.Join(escapes([]*v1.Pod{&p}), "\n")
		for what := range strings.SplitSeq(want, ", ") {
			if !strings.Contains(got, `user "": `+what) {
				t.Errorf("%s: %s is not found, but\n%s", spec, what, got)
			}
		}
	}
	const restricted = `{"securityContext":{"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"}},
		"containers":[{"name":"c","securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}}]}`
	var p v1.Pod
	if err := json.Unmarshal([]byte(restricted), &p.Spec); err != nil {
		t.Fatal(err)
	}
	p.UID = "u"
	if got := escapes([]*v1.Pod{&p}); len(got) != 0 {
		t.Errorf("restricted: %q", got)
	}
}
