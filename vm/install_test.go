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
		m.sh(aptGet + "install /vm/podrun.deb")
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

// debiansContainerd is serve's flag for the containerd of the distribution's own service.
const debiansContainerd = "--containerd-address=/run/containerd/containerd.sock"

// startDebiansContainerd starts that service, enabled, and stops podrun and its containerd.
func (m *machine) startDebiansContainerd() {
	m.t.Helper()
	m.sh("systemctl stop podrun; podrun down --all; systemctl unmask containerd; systemctl enable --now containerd")
}

const (
	aptGet = "DEBIAN_FRONTEND=noninteractive apt-get -y --no-install-recommends "
	// reinstall is an order to apt-get: the package once more.
	reinstall = "install --reinstall --allow-downgrades /vm/podrun.deb"
)

// TestPackage: the package brings a unit that nothing starts unasked, and with it podrun serves, is restarted
// when it dies, and stops. Its settings count. Pods run on while it is installed anew and when it is removed, and end
// when it is purged.
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
	// Each container takes an inotify instance of root. What the administrator sets counts, also when the package comes again.
	if got := m.sh("sysctl -n fs.inotify.max_user_instances"); got != "8192" {
		t.Errorf("inotify instances: %s", got)
	}
	m.write("/etc/sysctl.d/99-own.conf", "fs.inotify.max_user_instances = 9000\n")
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
	m.sh(`install -D -m 644 /vm/box.tar /var/lib/podrun/images/box.tar
		echo PODRUN_LISTEN=127.0.0.1:10250 >>/etc/default/podrun; systemctl start podrun
		timeout 5 bash -c 'exec 3<>/dev/tcp/127.0.0.1/10250; printf "GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n" >&3; head -n 1 <&3' | grep 200`)
	if got := m.sh("cd /run/podrun; stat -c '%a %U:%G %n' podrun.sock containerd/containerd.sock; stat -c '%a %U:%G %n' /var/lib/podrun"); got !=
		"600 root:root podrun.sock\n600 root:root containerd/containerd.sock\n700 root:root /var/lib/podrun" {
		t.Errorf("sockets and data: %s", got)
	}
	m.write("/etc/pods/web.yaml", podOf("web", sleeps))
	m.await("a pod", isReady("web"))
	began := m.sh(mainProcess)
	for _, order := range []string{reinstall, "remove podrun"} {
		m.sh(aptGet + order)
		if got := m.sh("sysctl -n fs.inotify.max_user_instances"); order == reinstall && got != "9000" {
			t.Errorf("inotify instances: %s", got)
		}
		if got := m.sh(mainProcess); got != began {
			t.Errorf("after apt-get %s the pod's process is %q, was %q", order, got, began)
		}
	}
	if r := m.run("test", "-e", "/usr/bin/podrun"); r.Code == 0 {
		t.Error("the removed package has left its program")
	}
	m.sh(aptGet + "purge podrun")
	m.await("nothing to run", `! pgrep -xf "sleep 7654" && ! pgrep -f '^[^ ]*podrun ' && ! grep /var/lib/podrun /proc/mounts`)
}
