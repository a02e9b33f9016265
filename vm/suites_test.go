package vm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// bootWithSuites starts a machine with podrun installed and the project's test binaries, which are built here, in
// /suites: there is no Go in the guest. It has huge pages and swap space.
func bootWithSuites(t *testing.T) *machine {
	t.Helper()
	m := bootInstalled(t)
	m.powerOff()
	tree := m.path("suites")
	must(t, os.MkdirAll(filepath.Join(tree, "e2e"), 0o755))
	for name, dir := range map[string]string{"runtime.test": "../internal/runtime/containerd", "e2e.test": "../e2e"} {
		must(t, run("go", "test", "-c", "-tags", "ownshim", "-ldflags", "-s -w", "-o", filepath.Join(tree, name), dir))
	}
	// What they read of the project.
	must(t, run("cp", "-r", "../testdata", "../examples", tree))
	must(t, run("mke2fs", "-q", "-t", "ext4", "-d", tree, m.path("suites.img"), "1G"))
	must(t, os.RemoveAll(tree))
	must(t, os.Rename(m.path("suites.img"), m.path("blank.img")))
	m.start()
	m.sh("mkdir /suites; mount /dev/vdc /suites; sysctl -qw vm.nr_hugepages=16; fallocate -l 256M /swap; chmod 600 /swap; mkswap -q /swap; swapon /swap")
	// Without KVM a kernel that changes its own code while it runs on two processors panics at times: this one would, with
	// the first cgroup that has CPUs of its own and after the last one.
	m.sh("systemd-run --quiet --unit=cpus -p AllowedCPUs=0-1 sleep infinity; grep -w cpuset /sys/fs/cgroup/system.slice/cgroup.controllers")
	// Without these, tests would see that podrun knows it, and no more.
	m.sh("[ $(cat /proc/sys/vm/nr_hugepages) -ge 1 ]; grep -w hugetlb /sys/fs/cgroup/cgroup.controllers; cat /sys/fs/cgroup/init.scope/cpu.pressure")
	return m
}

// suite runs tests of a binary in the guest and logs what each did. None that is named, nor a part of it, may be
// skipped. Their files are on the disk: Debian 13 has no devices in /tmp.
func (m *machine) suite(binary, names string, env ...string) {
	m.t.Helper()
	script := fmt.Sprintf("mkdir -p -m 1777 /t; cd /suites/e2e; env TMPDIR=/t PODRUN_E2E=1 PODRUN_E2E_BINARY=/usr/bin/podrun %s GOMAXPROCS=2 ../%s -test.v -test.timeout=40m -test.run='%s'", strings.Join(env, " "), binary, names)
	r, err := m.try(45*time.Minute, "", "sh", "-euc", script)
	must(m.t, err)
	passed, parts := 0, 0
	for line := range strings.Lines(string(r.Stdout)) {
		text := strings.TrimSpace(line)
		if strings.HasPrefix(text, "--- SKIP") {
			m.t.Errorf("%s: %s", env, text)
		}
		if strings.HasPrefix(line, "--- PASS") {
			m.t.Log(text)
			passed++
		}
		parts += strings.Count(line, "--- PASS")
	}
	m.t.Logf("%s: %d tests and parts of them have passed", env, parts)
	if want := 1 + strings.Count(names, "|Test"); r.Code != 0 || passed != want {
		m.t.Errorf("%s %s: %d of %d have passed; %v", env, names, passed, want, r)
	}
}

// TestConformance: the conformance suite of runtimes passes with podrun's own containerd and with Debian's.
func TestConformance(t *testing.T) {
	for _, driver := range []string{"cgroupfs", "systemd"} {
		t.Run("with the cgroup driver "+driver, func(t *testing.T) {
			bootWithSuites(t).suite("runtime.test", "^TestConformance$/^(embedded|debian)$",
				"PODRUN_CONTAINERD_BIN=/usr/bin", "PODRUN_TEST_CGROUP_DRIVER="+driver)
		})
	}
}

// TestEndToEnd: what depends on cgroups and on a whole machine passes end to end, with both cgroup drivers, on podrun's
// own containerd and on Debian's.
func TestEndToEnd(t *testing.T) {
	m := bootWithSuites(t)
	const names = "^(TestLimits|TestMemoryLimitKills|TestPodCgroup|TestPodResources|TestOOMScore|TestHugePages|TestDevices|" +
		"TestResourcesChangeInPlace|TestResizePolicy|TestStats|TestPressure|TestStaticCPUs|TestSysctls|TestShareProcessNamespace|TestHostNamespaces|" +
		"TestPodNetwork|TestVolumes|TestOnceSucceeds|TestOnceInterrupted|TestCrashLoop|TestStopIsGraceful)$"
	for _, driver := range []string{"cgroupfs", "systemd"} {
		m.suite("e2e.test", names, "PODRUN_E2E_CGROUP_DRIVER="+driver)
	}
	m.suite("e2e.test", names, "PODRUN_E2E_CONTAINERD=debian", "PODRUN_CONTAINERD_BIN=/usr/bin")
}

// TestAttacks: local users without rights, images and pods of strangers attack, on cgroup v2, and get nothing.
func TestAttacks(t *testing.T) {
	m := bootWithSuites(t)
	names := "^(TestLocalUserAndClaims|TestDirectoriesOfALocalUser|TestPermissionsOfManifests|TestFileModes|" +
		"TestPeerOnTheBridge|TestServerIsNoOption|TestRuntimeIsNotLedAstray|TestEscapes|TestForgedVariables|" +
		"TestSecretsOfTwoContainers|TestSecretsOfRuntimeClasses|TestOwnUsers|TestRestricted|TestRestrictedPod|TestPrivileged|" +
		"TestSecurityDefaults|TestRefusedUsers|TestCopy|TestPodLimitsRemoved|TestPodSecurity|TestLocalhostSeccomp|TestDevices)$"
	if m.isBefore(6, 3) { // its Secret is in memory; see TestUserNamespaces
		names = strings.Replace(names, "TestOwnUsers|", "", 1)
	}
	m.suite("e2e.test", names)
}
