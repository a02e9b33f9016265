package vm

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// installed is a disk with podrun, which the first test that needs it makes.
var installed struct {
	once sync.Once
	disk string
	// off is how long the machine needs to switch itself off when no pod runs.
	off time.Duration
}

// bootInstalled starts a machine that has podrun from its package, with the unit as the package left it.
func bootInstalled(t *testing.T) *machine {
	t.Helper()
	skipUnwanted(t)
	installed.once.Do(func() {
		m := boot(t, filepath.Join(setup.image, "disk.img"))
		began := time.Now()
		m.sh("DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends /vm/podrun.deb")
		t.Logf("installed after %.0f s", time.Since(began).Seconds())
		installed.off = m.powerOff()
		t.Logf("off after %.0f s", installed.off.Seconds())
		disk := filepath.Join(setup.dir, "installed.img")
		must(t, os.Rename(m.path("disk.img"), disk))
		installed.disk = disk
	})
	if installed.disk == "" {
		t.Fatal("podrun could not be installed")
	}
	m := boot(t, installed.disk)
	m.record()
	return m
}

// bootServing starts a machine where podrun serves, enabled, with box among its images.
func bootServing(t *testing.T) *machine {
	t.Helper()
	m := bootInstalled(t)
	m.sh("install -D -m 644 /vm/box.tar /var/lib/podrun/images/box.tar")
	m.enable()
	return m
}

// enable enables and starts the unit, with flags of serve's beside the package's. The command returns when
// podrun has notified systemd.
func (m *machine) enable(flags ...string) {
	m.t.Helper()
	m.write("/etc/systemd/system/podrun.service.d/test.conf",
		"[Service]\nExecStart=\nExecStart=/usr/bin/podrun serve --manifests /etc/pods "+strings.Join(flags, " ")+"\n")
	m.sh("systemctl daemon-reload; systemctl enable podrun; systemctl restart podrun")
}

// TestPackage: the package brings a unit that nothing starts unasked, and with it podrun serves, is restarted
// when it dies, and stops.
func TestPackage(t *testing.T) {
	m := bootInstalled(t)
	if got := m.sh("stat -fc %T /sys/fs/cgroup"); got != "cgroup2fs" {
		t.Errorf("cgroups are %s", got)
	}
	if got := m.run("systemctl", "is-enabled", "podrun"); string(got.Stdout) != "disabled\n" {
		t.Errorf("the unit after the installation: %v", got)
	}
	if got := m.sh("stat -c '%a %U:%G' /etc/default/podrun"); got != "600 root:root" {
		t.Errorf("the settings are %s", got)
	}
	show := func(property string) string { return m.sh("systemctl show -P " + property + " podrun") }
	if got := show("ActiveState"); got != "inactive" {
		t.Errorf("podrun after the installation: %s", got)
	}
	m.sh("systemctl enable --now podrun")
	if got := show("ActiveState"); got != "active" {
		t.Errorf("podrun: %s", got)
	}
	m.sh("podrun get pods")
	before := show("MainPID")
	m.sh("kill -KILL " + before)
	m.await("podrun to be started again", `[ "$(systemctl show -P NRestarts podrun)" = 1 ]; systemctl is-active podrun`)
	m.sh("podrun get pods; systemctl stop podrun")
	if got := show("ActiveState") + " " + show("Result"); got != "inactive success" {
		t.Errorf("podrun after its stop: %s", got)
	}
}
