package vm

import (
	"fmt"
	"strings"
	"testing"
)

// TestReboot: after a reboot podrun is there by itself, and each pod begins as on its first day, in its order: init
// containers fill volumes in memory, sidecars are up, before main containers start. Jobs run again, unless they are to
// run once ever; a deadline counts anew; a pod whose manifest was removed is gone.
func TestReboot(t *testing.T) {
	t.Run("with podrun's own containerd", func(t *testing.T) { reboot(t, "") })
	t.Run("with Debian's containerd", func(t *testing.T) {
		if testing.Short() {
			t.Skip("one is enough for CI")
		}
		reboot(t, debiansContainerd)
	})
}

// initOf is an init container of podOf's, with more of its fields.
func initOf(name, script, more string) string {
	return fmt.Sprintf("  - {name: %s, image: %s, command: [sh, -c, %q], volumeMounts: [{name: t, mountPath: /t}, {name: m, mountPath: /m}]%s}",
		name, box, script, more)
}

func reboot(t *testing.T, containerd string) {
	m := bootServing(t)
	if containerd != "" {
		m.startDebiansContainerd()
		m.enable(containerd)
		containerdRestarts(t, m)
	}
	m.write("/etc/pods/fills.yaml", podOf("fills", `echo "main:$(cat /m/x)" >>/t/fills; `+forever,
		"initContainers:", initOf("i", "sleep 2; echo init >>/t/fills; echo filled >/m/x", "")))
	m.write("/etc/pods/gated.yaml", podOf("gated", `echo "main:$(cat /m/up)" >>/t/gated; `+forever, "initContainers:",
		initOf("s", "echo side >>/t/gated; sleep 2; echo up >/m/up; "+forever,
			", restartPolicy: Always, startupProbe: {exec: {command: [test, -e, /m/up]}, periodSeconds: 1, timeoutSeconds: 30, failureThreshold: 60}"),
		initOf("i", "echo init:$(cat /m/up) >>/t/gated", "")))
	m.write("/etc/pods/job.yaml", podOf("job", "echo ran >>/t/job; exit 3", "restartPolicy: Never"))
	m.write("/etc/pods/ever.yaml", onceEver(podOf("ever", "echo ran >>/t/ever", "restartPolicy: OnFailure")))
	m.write("/etc/pods/cut.yaml", podOf("cut", "echo ran >>/t/cut; "+forever, "restartPolicy: Never", "activeDeadlineSeconds: 600"))
	m.write("/etc/pods/late.yaml", podOf("late", "echo ran >>/t/late; "+forever, "restartPolicy: Never", "activeDeadlineSeconds: 20"))
	m.write("/etc/pods/leaves.yaml", podOf("leaves", "echo ran >>/t/leaves; "+forever))
	ends := func(when string) {
		t.Helper()
		m.await("the pods "+when, isReady("fills")+"; "+isReady("gated")+"; "+isReady("cut"))
		for _, end := range []string{"job Failed", "ever Succeeded", "late Failed"} {
			name, phase, _ := strings.Cut(end, " ")
			m.await(end+" "+when, fmt.Sprintf("podrun wait %s --for=jsonpath='{.status.phase}'=%s --timeout=30s", name, phase))
		}
		if got := m.sh("podrun get pods late -o jsonpath='{.status.reason}'"); got != "DeadlineExceeded" {
			t.Errorf("%s: the late one's reason is %s", when, got)
		}
	}
	ends("at first")
	m.await("the pod that leaves", isReady("leaves"))
	for boot, off := range []string{"systemctl stop podrun; rm /etc/pods/leaves.yaml", ":"} { // the second with podrun running
		m.sh(off)
		m.reboot()
		ends(fmt.Sprintf("after reboot %d", boot+1))
		runs := boot + 2
		for name, wrote := range map[string]string{
			"fills": "init main:filled", "gated": "side init:up main:up", "job": "ran", "ever": "ran", "cut": "ran", "late": "ran", "leaves": "ran",
		} {
			want := strings.TrimSpace(strings.Repeat(wrote+" ", runs))
			if name == "ever" || name == "leaves" {
				want = wrote
			}
			if got := strings.Join(strings.Fields(m.sh("cat /trace/"+name)), " "); got != want {
				t.Errorf("%s wrote %q, want %q", name, got, want)
			}
		}
		// A shutdown ends it in order: the same container goes on counting.
		if got := m.sh(`podrun get pods fills -o jsonpath='{.status.containerStatuses[0].restartCount}'`); got != fmt.Sprint(boot+1) {
			t.Errorf("boot %d: restart count %s", boot+1, got)
		}
	}
	m.await("the removed pod to be gone", "! podrun get pods leaves")
	if got := m.sh("systemctl show -P NRestarts podrun"); got != "0" {
		t.Errorf("podrun was restarted %s times", got)
	}
}

// containerdRestarts checks that pods run on while their containerd's service is restarted, and are restarted afterwards.
func containerdRestarts(t *testing.T, m *machine) {
	t.Helper()
	m.write("/etc/pods/dies.yaml", podOf("dies", sleeps))
	m.await("the pod", isReady("dies"))
	before := m.sh(mainProcess)
	m.sh("systemctl restart containerd; sleep 10")
	if after := m.sh(mainProcess); after != before {
		t.Errorf("after the restart of containerd process %s is %s", before, after)
	}
	m.sh(`kill -KILL $(pgrep -xf "` + sleeps + `")`)
	m.await("another one", `now=$(`+mainProcess+`); [ "$now" != "" ] && [ "$now" != "`+before+`" ]`)
	m.sh("rm /etc/pods/dies.yaml")
	m.await("it to be gone", "! podrun get pods dies")
}
