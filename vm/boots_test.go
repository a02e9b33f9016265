package vm

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// lines returns how many lines a pod has written to its trace.
func (m *machine) lines(name string) int {
	m.t.Helper()
	n, err := strconv.Atoi(m.sh("cat /trace/" + name + " 2>/dev/null | wc -l"))
	must(m.t, err)
	return n
}

// TestClock: the machine's clock has no battery. After a boot it is 1970 until the network's time is there, and what
// runs goes on; what has ended does not begin again; what waits does not wait for half a century.
func TestClock(t *testing.T) {
	m := bootServing(t)
	m.write("/etc/systemd/system/podrun.service.d/clock.conf", "[Service]\nExecStartPre=/bin/sh -c '[ ! -e /no-clock ] || date -s @3600'\n")
	m.sh("systemctl daemon-reload")
	m.write("/etc/pods/done.yaml", onceEver(podOf("done", "echo x >>/t/done", "restartPolicy: OnFailure")))
	m.write("/etc/pods/steady.yaml", podOf("steady", "echo x >>/t/steady; "+forever))
	m.write("/etc/pods/limited.yaml", podOf("limited", "echo x >>/t/limited; "+forever, "activeDeadlineSeconds: 100000"))
	m.write("/etc/pods/fails.yaml", podOf("fails", "echo x >>/t/fails; exit 1"))
	pod := podOf("x", "echo x >>/t/cron", "restartPolicy: Never")
	m.write("/etc/pods/cron.yaml", "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: cron}\nspec:\n  schedule: \"* * * * *\"\n"+
		"  jobTemplate:\n    spec:\n      template:\n        "+
		strings.ReplaceAll(strings.TrimSpace(pod[strings.Index(pod, "spec:"):]), "\n", "\n        ")+"\n")
	m.await("the job to end", `podrun wait done --for=jsonpath='{.status.phase}'=Succeeded --timeout=30s`)
	m.await("a run of the CronJob", "[ -s /trace/cron ]")
	m.sh("touch /no-clock")
	m.reboot()
	if year := m.sh("date +%Y"); year != "1970" {
		t.Fatalf("it is %s", year)
	}
	inBoot := m.lines("cron")
	m.await("the pods", isReady("steady")+"; "+isReady("limited"))
	m.sh("sleep $((61 - $(date +%-S)))") // a minute has begun
	m.await("restarts", fmt.Sprintf("[ $(wc -l < /trace/fails) -gt %d ]", m.lines("fails")))
	const containers = `podrun get pods steady limited -o jsonpath='{.items[*].status.containerStatuses[*].containerID}'`
	before, steady, limited, fails, cron := m.sh(containers), m.lines("steady"), m.lines("limited"), m.lines("fails"), m.lines("cron")
	if cron != inBoot {
		t.Errorf("the CronJob ran %d times while the clock was wrong", cron-inBoot)
	}
	m.sh("podrun events | grep ClockNotSynchronized")
	m.sh(fmt.Sprintf("date -s @%d", time.Now().Unix())) // the network's time
	m.await("a restart", fmt.Sprintf("[ $(wc -l < /trace/fails) -gt %d ]", fails))
	m.await("another run of the CronJob", fmt.Sprintf("[ $(wc -l < /trace/cron) -gt %d ]", cron))
	if got := m.sh(containers); got != before {
		t.Errorf("the containers %s are %s now", before, got)
	}
	if a, b := m.lines("steady"), m.lines("limited"); a != steady || b != limited {
		t.Errorf("began again: %d and %d, %d and %d before", a, b, steady, limited)
	}
	if got := m.lines("done"); got != 1 {
		t.Errorf("what had ended ran %d times", got)
	}
	if got := m.lines("cron"); got > cron+3 {
		t.Errorf("the CronJob ran %d times since the clock is right", got-cron)
	}
	if got := m.lines("fails"); got > fails+3 {
		t.Errorf("what fails ran %d times since the clock is right", got-fails)
	}
}

// TestReadOnlyRoot: the root file system cannot be written to; /var is another one.
func TestReadOnlyRoot(t *testing.T) {
	m := bootServing(t)
	m.write("/etc/pods/web.yaml", mounting(podOf("web", "echo x >>/t/web; echo x >>/d/x; "+forever, "- {name: d, emptyDir: {}}"),
		"{name: d, mountPath: /d}"))
	m.sh(`systemctl stop podrun; podrun down --all
		mkfs.ext4 -q /dev/vdc; mkdir -p /new /trace; mount /dev/vdc /new; cp -a /var/. /new/; mkdir /new/trace; umount /new
		systemctl -q mask tmp.mount
		printf '%s\n' '/dev/vda / ext4 ro 0 1' '/dev/vdc /var ext4 defaults 0 2' \
			'/var/trace /trace none bind 0 0' > /etc/fstab`)
	for boot := range 2 {
		m.reboot()
		if r := m.run("touch", "/x"); r.Code == 0 {
			t.Fatal("the root can be written to")
		}
		m.await("the pod", isReady("web"))
		if got := m.sh("podrun exec web -- cat /d/x | wc -l"); got != strconv.Itoa(boot+1) {
			t.Errorf("boot %d: %s lines are in its volume", boot, got)
		}
	}
	if got := m.lines("web"); got != 2 {
		t.Errorf("it began %d times in two boots", got)
	}
	m.sh("podrun logs web; podrun describe pod web; systemctl stop podrun; podrun down --all")
}

// TestFullDisk: the machine boots with a full disk. podrun says so; when there is space again everything is as before.
func TestFullDisk(t *testing.T) {
	m := bootServing(t)
	m.write("/etc/pods/done.yaml", onceEver(podOf("done", "echo x >>/t/done; sync /t/done", "restartPolicy: OnFailure")))
	m.write("/etc/pods/web.yaml", podOf("web", "echo began; "+forever))
	m.await("the pods", isReady("web")+`; podrun wait done --for=jsonpath='{.status.phase}'=Succeeded --timeout=30s`)
	m.sh(`fallocate -l $(df --output=avail -B1 / | tail -1) /fill; dd if=/dev/zero of=/more bs=64k 2>/dev/null || true
		dd if=/dev/zero of=/most bs=512 2>/dev/null || true; sync; df / | tail -1`)
	m.reboot()
	if r := m.run("sh", "-c", "head -c 100000 /dev/zero > /x"); r.Code == 0 {
		t.Fatal("the disk is not full")
	}
	m.await("podrun", "systemctl is-active podrun && [ -S /run/podrun/podrun.sock ]")
	time.Sleep(20 * time.Second) // it has time to do what it should not
	m.sh(`systemctl is-active podrun; podrun get pods web | grep "no space left on device"
		journalctl -b -u podrun --no-pager -o cat | grep "no space left on device"`)
	t.Logf("on the full disk:\n%s", m.sh("podrun get pods; journalctl -b -u podrun --no-pager -o cat | tail -20"))
	if got := m.sh("systemctl show -P NRestarts podrun"); got != "0" {
		t.Errorf("podrun was restarted %s times", got)
	}
	m.sh("rm -f /fill /more /most /x")
	m.await("the pods", isReady("web")+`; podrun wait done --for=jsonpath='{.status.phase}'=Succeeded --timeout=30s`)
	if got := m.lines("done"); got != 1 {
		t.Errorf("what had ended ran %d times", got)
	}
	m.sh("podrun logs web | grep began")
	m.reboot()
	m.await("the pods after another boot", isReady("web"))
	if got := m.lines("done"); got != 1 {
		t.Errorf("after another boot what had ended ran %d times", got)
	}
}

// TestHybridCgroups: the kernel's command line asks systemd for cgroup v1 and v2 side by side, as before.
func TestHybridCgroups(t *testing.T) {
	m := bootServing(t)
	m.powerOff()
	m.kernel = "systemd.unified_cgroup_hierarchy=0 SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1"
	m.start()
	if got := m.sh("stat -fc %T /sys/fs/cgroup; stat -fc %T /sys/fs/cgroup/unified"); got != "tmpfs\ncgroup2fs" {
		m.skip("this systemd has no hybrid cgroups: " + got)
	}
	for _, driver := range []string{"cgroupfs", "systemd"} {
		m.sh("systemctl stop podrun; rm -f /etc/pods/*; podrun down --all")
		m.enable("--cgroup-driver", driver)
		m.write("/etc/pods/limits.yaml", inContainer(podOf("limits", `sleep 7654 & `+forever),
			"resources: {limits: {memory: 32Mi, cpu: 200m}, requests: {memory: 16Mi, cpu: 100m}}"))
		if r := m.run("mountpoint", "-q", "/sys/fs/cgroup/memory"); r.Code != 0 {
			m.await("the reason to be said", "podrun get pods limits | grep 'the controller memory is not mounted'")
			m.sh("! ls -d /sys/fs/cgroup/memory/*") // no directories that are no cgroups
			m.skip("the kernel has no memory controller of cgroup v1, and podrun says so")
		}
		m.await("the pod", isReady("limits"))
		for _, c := range []struct{ controller, file, want string }{
			{"memory", "memory.limit_in_bytes", "33554432"}, {"memory", "../memory.limit_in_bytes", "33554432"},
			{"cpu,cpuacct", "cpu.cfs_quota_us", "20000"}, {"cpu,cpuacct", "cpu.shares", "102"},
		} {
			group := m.sh(`grep ":` + c.controller + `:" /proc/$(pgrep -xf "sleep 7654")/cgroup | cut -d: -f3`)
			if got := m.sh("cat /sys/fs/cgroup/" + c.controller + group + "/" + c.file); got != c.want {
				t.Errorf("%s: %s of %s is %s, want %s", driver, c.file, group, got, c.want)
			}
		}
		m.write("/etc/pods/greedy.yaml", inContainer(podOf("greedy", `x=$(head -c 64000000 /dev/zero | tr "\0" a); echo ${#x}`,
			"restartPolicy: Never"), "resources: {limits: {memory: 32Mi}}"))
		m.await("the greedy container's end",
			`[ "$(podrun get pods greedy -o jsonpath='{.status.containerStatuses[0].state.terminated.reason}')" = OOMKilled ]`)
	}
	m.sh("systemctl stop podrun; podrun down --all")
	m.await("nothing to be left", `! find /sys/fs/cgroup -type d -path '*pod*-*-*' -o -type d -path '*podrun/*/pod*' | grep .`)
}
