package vm

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestSystemd: podrun may hang, be restarted or be read anew by systemd, and its pods run on as the same processes. Its
// log is in the journal, at the levels that it has.
func TestSystemd(t *testing.T) {
	m := bootServing(t)
	show := func(property string) string { return m.sh("systemctl show -P " + property + " podrun") }
	for _, pod := range []string{"a", "b"} {
		m.write("/etc/pods/"+pod+".yaml", podOf(pod, forever))
		m.await(pod, isReady(pod))
	}
	// A container's identifier, its process and when the kernel began that.
	const process = `jsonpath='{.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}'`
	pods := func() string {
		return m.sh(`for pod in a b; do podrun get pods $pod -o ` + process + `; done
			pgrep -f '[t]rap "exit 0" TERM; while' | while read -r p; do cut -d' ' -f1,22 /proc/$p/stat; done`)
	}
	before := pods()
	if got := strings.Count(before, "containerd://"); got != 2 {
		t.Fatalf("before: %s", before)
	}
	untouched := func(after string) {
		t.Helper()
		if got := pods(); got != before {
			t.Errorf("pods after %s:\n%s\nbefore:\n%s", after, got, before)
		}
	}

	m.sh("systemctl daemon-reload")
	untouched("daemon-reload")
	restarted := func(what, order string) {
		t.Helper()
		pid := show("MainPID")
		m.sh(order)
		m.await("podrun after "+what, fmt.Sprintf(
			`[ "$(systemctl show -P MainPID podrun)" != %s ]; systemctl is-active podrun; podrun wait a b --for=condition=Ready --timeout=30s`, pid))
		untouched(what)
	}
	restarted("a restart", "systemctl restart podrun")
	if got := show("NRestarts"); got != "0" {
		t.Errorf("restarts that nobody ordered: %s", got)
	}

	// Its time is the package's, shortened.
	if got := show("WatchdogUSec"); got != "30s" {
		t.Errorf("WatchdogSec of the package's unit: %s", got)
	}
	m.write("/etc/systemd/system/podrun.service.d/watchdog.conf", "[Service]\nWatchdogSec=10\n")
	m.sh("systemctl daemon-reload")
	restarted("a restart with another watchdog", "systemctl restart podrun")
	m.sh("sleep 15")
	if got := show("NRestarts"); got != "0" {
		t.Errorf("the watchdog restarted a podrun that lives: %s", got)
	}
	restarted("a hang", "kill -STOP $(systemctl show -P MainPID podrun)")
	if got := show("NRestarts"); got != "1" {
		t.Errorf("restarts by the watchdog: %s", got)
	}

	if got := m.sh("journalctl -b -u podrun --no-pager"); !strings.Contains(got, "Watchdog timeout") {
		t.Errorf("systemd's reason in the journal: %s", got)
	}
	if got := m.sh("journalctl -b -u podrun _COMM=podrun -o cat --no-pager"); !strings.Contains(got, "serving") {
		t.Errorf("podrun's log in the journal: %s", got)
	}
	m.write("/etc/pods/bad.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: Bad_Name}\n")
	m.await("a warning", "journalctl -b -u podrun -p warning _COMM=podrun -o cat --no-pager | grep bad.yaml")
	m.sh("rm /etc/pods/bad.yaml; ! journalctl -b -u podrun -p warning -o cat --no-pager | grep -w serving")

	// Of a local user's, neither signals on the bus nor orders count.
	local := "setpriv --reuid=65534 --regid=65534 --clear-groups "
	m.sh(local + "busctl emit /org/freedesktop/login1 org.freedesktop.login1.Manager PrepareForShutdown b true")
	if r := m.run("sh", "-c", local+"systemctl --no-ask-password stop podrun"); r.Code == 0 {
		t.Error("anyone may stop podrun")
	}
	m.sh("sleep 3")
	untouched("what a local user tried")

	// What the unit does without is in the docs, with systemd's figure for it.
	exposure := strings.Fields(m.sh("systemd-analyze security --no-pager podrun.service | grep 'Overall exposure' | grep -oE '[0-9]+[.][0-9]+'"))
	docs, err := os.ReadFile("../docs/security.md")
	must(t, err)
	if len(exposure) != 1 || !strings.Contains(string(docs), "exposure level "+exposure[0]) {
		t.Errorf("systemd-analyze security: %s; docs/security.md has another figure", exposure)
	}
	m.sh("systemctl stop podrun")
	still := m.sh(`pgrep -cf '[t]rap "exit 0" TERM; while'`)
	if still != "2" {
		t.Errorf("pods that run after podrun's stop: %s", still)
	}
	m.sh("podrun down --all")

	// A job of another unit is the first that needs podrun's containerd, and ends before the pods do.
	m.await("podrun's containerd to end", `! pgrep -f '^[^ ]*podrun containerd'`)
	m.write("/root/job.yaml", podOf("job", "until [ -e /t/go ]; do sleep 0.1; done", "restartPolicy: Never"))
	m.sh("systemd-run --unit=job podrun once --manifests /root/job.yaml")
	m.await("the job", "podrun wait job --for=jsonpath='{.status.phase}'=Running --timeout=30s")
	m.sh("systemctl start podrun")
	for _, pod := range []string{"a", "b"} {
		m.await(pod, isReady(pod))
	}
	before = pods()
	m.sh("touch /trace/go")
	m.await("the end of the job's unit", `! systemctl is-active job`)
	m.sh("sleep 3")
	untouched("the end of the unit that has started podrun's containerd")
	if got := show("NRestarts") + " " + m.sh("systemctl show -P Result job"); got != "0 success" {
		t.Errorf("restarts of podrun, and the job's result: %s", got)
	}
}
