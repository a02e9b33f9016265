package vm

import (
	"strings"
	"testing"
	"time"
)

// TestSELinux: with Debian's policy, permissive and enforcing, a container and its volumes have the labels that its manifest
// sets, others keep theirs, and the kernel keeps a container from what is not labelled for it.
func TestSELinux(t *testing.T) {
	m := bootServing(t)
	m.powerOff()
	m.kernel = "security=selinux selinux=1"
	m.start()
	began := time.Now()
	m.sh("getenforce; setfiles -F -e /proc -e /sys -e /dev -e /run -e /vm /etc/selinux/default/contexts/files/file_contexts / 2>&1 | tail -5")
	t.Logf("labelled after %.0f s", time.Since(began).Seconds())
	m.reboot()
	t.Logf("%s", m.sh("getenforce; ps -eZ | grep -E 'agent|podrun|systemd$'; ls -Z /usr/bin/podrun"))
	options := func(level string) string {
		return "securityContext: {seLinuxOptions: {user: system_u, role: system_r, type: container_t, level: \"" + level + "\"}}"
	}
	volume := func(text string) string {
		return strings.Replace(text, "{name: m, mountPath: /m}]", "{name: m, mountPath: /m}, {name: d, mountPath: /d}]", 1)
	}
	m.write("/etc/pods/plain.yaml", volume(podOf("plain", "echo > /d/x; "+forever, "- {name: d, emptyDir: {}}")))
	m.write("/etc/pods/one.yaml", volume(podOf("one", "echo one > /d/x; "+forever, "- {name: d, emptyDir: {}}", options("s0:c1,c2"))))
	m.write("/etc/pods/two.yaml", volume(podOf("two", "echo two > /d/x; "+forever, "- {name: d, emptyDir: {}}", options("s0:c3,c4"))))
	for _, name := range []string{"plain", "one", "two"} {
		m.await(name, isReady(name))
		t.Logf("%s: %s", name, m.sh("podrun exec "+name+" -- sh -c 'cat /proc/1/attr/current; echo; ls -Zd /d /d/x /m /t /etc/hosts'"))
	}
}
