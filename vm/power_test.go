package vm

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestPowerOff: when the machine goes off, pods end in order within their grace periods, critical ones last, with
// their preStop hooks. The machine waits for the slowest pod and not much longer.
func TestPowerOff(t *testing.T) {
	flags := []string{"--shutdown-grace-period=60s", "--shutdown-grace-period-critical-pods=20s"}
	for _, c := range []ending{
		{name: "with D-Bus", flags: flags},
		{name: "with the default flags"},
		{name: "without D-Bus", without: "dbus.socket dbus.service systemd-logind.service", flags: flags},
		{name: "without logind", without: "systemd-logind.service", flags: flags},
		{name: "with systemd's cgroups", flags: append([]string{"--cgroup-driver=systemd"}, flags...)},
		{name: "with Debian's containerd", flags: append([]string{debiansContainerd}, flags...)},
		{name: "by a reboot", reboot: true, flags: flags},
	} {
		t.Run(c.name, func(t *testing.T) { powerOff(t, c) })
	}
}

// ending is how a machine ends.
type ending struct {
	name    string
	without string   // services that it does not have
	flags   []string // serve's
	reboot  bool     // it begins again
}

// stubborn is the longest grace period, in seconds, of a pod that ignores the signal. It is longer than logind waits.
const stubborn = 12

func powerOff(t *testing.T, c ending) {
	m := bootServing(t)
	if c.without != "" {
		m.sh("systemctl mask " + c.without)
		m.reboot()
		for service := range strings.FieldsSeq(c.without) {
			if r := m.run("systemctl", "is-active", service); r.Code == 0 {
				t.Fatalf("%s runs", service)
			}
		}
	}
	if slices.Contains(c.flags, debiansContainerd) {
		m.startDebiansContainerd()
	}
	m.enable(c.flags...)
	// Times are of the machine's uptime.
	const now = `cut -d" " -f1 /proc/uptime`
	ends := func(name string) string {
		return fmt.Sprintf(`trap "sleep 2; %s >/t/%s; exit 0" TERM; while :; do sleep 0.2; done`, strings.ReplaceAll(now, `"`, `\"`), name)
	}
	m.write("/etc/pods/web.yaml", inContainer(podOf("web", ends("web"), "terminationGracePeriodSeconds: 10"),
		fmt.Sprintf("lifecycle: {preStop: {exec: {command: [sh, -c, %q]}}}", now+" >/t/hook")))
	m.write("/etc/pods/db.yaml", podOf("db", ends("db"), "terminationGracePeriodSeconds: 10", "priorityClassName: system-node-critical"))
	m.write("/etc/pods/stubborn.yaml", inContainer(podOf("stubborn", fmt.Sprintf(`trap "" TERM; while :; do %s >/t/next; mv /t/next /t/stubborn; sleep 0.2; done`, now),
		fmt.Sprintf("terminationGracePeriodSeconds: %d", stubborn)), "resources: {requests: {cpu: 100m}}")) // of another class
	for _, pod := range []string{"web", "db", "stubborn"} {
		m.await(pod, isReady(pod))
	}
	if slices.Contains(c.flags, "--cgroup-driver=systemd") {
		noneEndsEarly(t, m)
	}
	before := seconds(t, m.sh(now))
	var took time.Duration
	var console string // until the machine was off, or, of a reboot, until it was there again
	if written := m.consoleSize(); c.reboot {
		m.reboot()
		text, err := os.ReadFile(m.path("console"))
		must(t, err)
		console = string(text[written:])
	} else {
		took = m.powerOff() - installed.off
		console = m.console()
		m.start()
	}
	at := map[string]float64{}
	for _, name := range []string{"hook", "web", "db", "stubborn"} {
		r := m.run("cat", "/trace/"+name)
		if r.Code != 0 {
			t.Errorf("%s was killed before its end: %v", name, r)
			continue
		}
		at[name] = math.Round(10*(seconds(t, string(r.Stdout))-before)) / 10
	}
	t.Logf("the machine was off %.0f s later than without pods; ends after its order, in seconds: %v", took.Seconds(), at)
	if at["hook"] > at["web"] || at["web"] > at["db"] || at["stubborn"] > at["db"] {
		t.Error("wrong order")
	}
	if at["stubborn"] < stubborn-2 {
		t.Errorf("a pod was killed before its grace period of %d s was over", stubborn)
	}
	// An emulated machine does slowly what there is to do beside. systemd's own wait for what a service has left is 90 s.
	slack := 5.0
	if !setup.kvm {
		slack = 20
	}
	// 2 s more are the critical pod's, which begins to end when the others have ended.
	if most := stubborn + 2 + slack; at["db"] > most || took.Seconds() > most {
		t.Errorf("the machine waited longer than the longest grace period; %s", console)
	}
	if strings.Contains(console, "Waiting for process") {
		t.Errorf("systemd waited for processes of pods; %s", console)
	}
	if t.Failed() {
		t.Log(m.run("journalctl", "-b", "-1", "-n", "300", "--no-pager", "-o", "short-monotonic", "-u", "podrun"))
	}
}

// noneEndsEarly checks that systemd itself does not end the cgroups of three pods of two classes when the machine shuts
// down.
func noneEndsEarly(t *testing.T, m *machine) {
	t.Helper()
	units := strings.Fields(m.sh(`systemctl list-units --plain --no-legend --type=slice,scope "podrun*" | cut -d" " -f1`))
	if len(units) < 1+2+3+3 {
		t.Errorf("units %q", units)
	}
	for _, unit := range units {
		if got := m.sh("systemctl show -p Conflicts '" + unit + "'"); strings.Contains(got, "shutdown.target") {
			t.Errorf("%s has %s", unit, got)
		}
	}
}

// TestStartedDuringShutdown: podrun is killed and started again while the machine shuts down and something else delays
// that. It keeps no pod running, and the machine boots as usual.
func TestStartedDuringShutdown(t *testing.T) {
	m := bootServing(t)
	m.write("/etc/systemd/logind.conf.d/delay.conf", "[Login]\nInhibitDelayMaxSec=600\n")
	m.sh("systemctl restart systemd-logind")
	m.write("/etc/pods/web.yaml", podOf("web", "echo began >>/t/web; "+forever))
	m.await("the pod", isReady("web"))
	m.sh("systemd-run --unit delays systemd-inhibit --what=shutdown --mode=delay --who=test --why=test sleep 3600")
	m.await("another's delay", "systemd-inhibit --list --no-pager | grep -q systemd-inhibit; systemd-inhibit --list --no-pager | grep -q podrun")
	m.sh("systemctl --no-block reboot")
	const none = `now=$(podrun get pods web -o jsonpath='{.status.containerStatuses[0].state.running}'); [ "$now" = "" ]`
	m.await("the pod to end", none)
	m.sh("systemctl kill --kill-whom=main --signal=KILL podrun")
	m.await("podrun to notice the shutdown", `journalctl -b -u podrun --no-pager | grep -q "already shutting down"`)
	m.await("the pod to end again", none)
	m.sh("sleep 20; " + none)
	started := m.lines("web")
	m.sh("systemctl --no-block stop delays")
	m.awaitBoot()
	m.await("the pod to start", fmt.Sprintf(`[ "$(grep -c began /trace/web)" = %d ]; `, started+1)+isReady("web"))
}

func seconds(t *testing.T, text string) float64 {
	t.Helper()
	s, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	must(t, err)
	return s
}
