package vm

import (
	"fmt"
	"strings"
	"testing"
)

// armored is the profile of type Localhost: it allows everything but to write one file.
const armored = `profile vm-armored flags=(attach_disconnected,mediate_deleted) {
  file, capability, network, signal, umount, mount, ptrace,
  deny /m/denied w,
}
`

// TestAppArmor: a container runs under the profile that its manifest sets, under the default profile if it sets none,
// and under none if it is privileged. One that asks for a profile that is not loaded waits for it.
func TestAppArmor(t *testing.T) {
	m := bootServing(t)
	// With this capability, nothing but AppArmor keeps a container from mounting.
	may := "capabilities: {add: [SYS_ADMIN]}"
	profile := func(kind string) string { return "appArmorProfile: {type: " + kind + "}" }
	const local = "appArmorProfile: {type: Localhost, localhostProfile: vm-armored}"
	cases := []struct{ name, pod, container, want string }{
		{"none", "", may, "podrun-default (enforce)"},
		{"by-pod", profile("RuntimeDefault"), may, "podrun-default (enforce)"},
		{"free", profile("Unconfined"), may, "unconfined"},
		{"inner", profile("Unconfined"), may + ", " + profile("RuntimeDefault"), "podrun-default (enforce)"},
		{"inner-free", profile("RuntimeDefault"), may + ", " + profile("Unconfined"), "unconfined"},
		{"privileged", profile("RuntimeDefault"), "privileged: true", "unconfined"},
		{"local", local, may, "vm-armored (enforce)"},
		{"inner-local", "", may + ", " + local, "vm-armored (enforce)"},
	}
	for _, c := range cases {
		m.write("/etc/pods/"+c.name+".yaml", inContainer(podOf(c.name, forever, "securityContext: {"+c.pod+"}"),
			"securityContext: {"+c.container+"}"))
	}
	for _, name := range []string{"local", "inner-local"} {
		m.await(name+" to say which profile is missing", fmt.Sprintf(
			`podrun get pods %s -o jsonpath='{.status.containerStatuses[0].state.waiting}' | tee /tmp/waiting |
			grep -F CreateContainerConfigError; grep -F vm-armored /tmp/waiting; grep -F 'not loaded' /tmp/waiting`, name))
		t.Logf("%s", m.sh("cat /tmp/waiting"))
	}
	m.write("/etc/apparmor.d/vm-armored", armored)
	m.sh("apparmor_parser -r /etc/apparmor.d/vm-armored")
	for _, c := range cases {
		m.await(c.name, isReady(c.name))
		in := func(script string) reply { return m.run("podrun", "exec", c.name, "--", "sh", "-c", script) }
		// The container's first process and one that exec adds.
		for _, of := range []string{"1", "self"} {
			if got := in("cat /proc/" + of + "/attr/current"); strings.TrimSpace(string(got.Stdout)) != c.want {
				t.Errorf("%s: process %s is under %v, want %s", c.name, of, got, c.want)
			}
		}
		allowed := func(what, script string, want bool) {
			t.Helper()
			if got := in(script); (got.Code == 0) != want {
				t.Errorf("%s: may %s: %v, want %t", c.name, what, got, want)
			}
		}
		allowed("mount", "mkdir -p /mnt && mount -t tmpfs none /mnt", !strings.HasPrefix(c.want, "podrun-default"))
		allowed("write the denied file", "echo > /m/denied", !strings.HasPrefix(c.want, "vm-armored"))
		allowed("write another file", "echo > /m/other", true)
	}
	if got := m.sh("journalctl -k -b --no-pager | grep -c 'apparmor=\"DENIED\".*podrun-default' || true"); got != "0" {
		t.Logf("%s denials of the default profile in the kernel's log", got)
	}
	// No profile keeps podrun from ending its containers.
	m.sh("systemctl stop podrun; podrun down --all")
	left := m.sh("podrun get pods -A --no-headers 2>/dev/null || true; pgrep -f '[t]rap \"exit 0\" TERM; while' || true")
	if left != "" {
		t.Errorf("left: %s", left)
	}
}
