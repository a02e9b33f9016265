package vm

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/cgroups/v3/cgroup2"
)

// forever is a script that runs until it is told to end.
const forever = `trap "exit 0" TERM; while :; do sleep 1000 & wait; done`

// sleeps is a script that does nothing else.
const sleeps = "sleep 7654"

// mainProcess prints the ID of the process of the one pod that sleeps, and when the kernel began it.
const mainProcess = `pid=$(pgrep -xf "` + sleeps + `"); cut -d" " -f1,22 /proc/$pid/stat`

// podOf is the manifest of a pod with one container, which runs the script. Pods see /t of the machine's /trace.
func podOf(name, script string, more ...string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
spec:
  volumes:
  - {name: t, hostPath: {path: /trace, type: DirectoryOrCreate}}
  - {name: m, emptyDir: {medium: Memory}}
  %s
  containers:
  - name: c
    image: %s
    command: [sh, -c, %q]
    volumeMounts: [{name: t, mountPath: /t}, {name: m, mountPath: /m}]
`, name, strings.Join(more, "\n  "), box, script)
}

// inContainer adds lines to the manifest's container.
func inContainer(text string, lines ...string) string {
	return text + "    " + strings.Join(lines, "\n    ") + "\n"
}

// mounting adds volume mounts to the container of podOf.
func mounting(text string, mounts ...string) string {
	const last = "{name: m, mountPath: /m}"
	return strings.Replace(text, last, strings.Join(append([]string{last}, mounts...), ", "), 1)
}

// onceEver makes a pod run once only, whatever reboots there are.
func onceEver(text string) string {
	return strings.Replace(text, "\nspec:", "\n  annotations: {podrun.io/run-policy: once-ever}\nspec:", 1)
}

// isReady is a script that succeeds when the pod is Ready.
func isReady(pod string) string {
	return "podrun wait " + pod + " --for=condition=Ready --timeout=30s"
}

// TestLimits: limits are in the cgroups of a pod and of its container, with both drivers, all pods weigh what they may
// request, and a child's end for want of memory ends the container, also after systemd has reloaded its configuration.
func TestLimits(t *testing.T) {
	m := bootServing(t)
	cpus, err := strconv.ParseUint(m.sh("nproc"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	all := fmt.Sprint(cgroup2.ConvertCPUSharesToCgroupV2Value(1024 * cpus))
	for _, driver := range []string{"cgroupfs", "systemd"} {
		m.sh("systemctl stop podrun; rm -f /etc/pods/*; podrun down --all; rm -f /trace/eat")
		m.enable("--cgroup-driver", driver)
		name := "limits-" + driver
		limits := func(memory, cpu int) {
			m.write("/etc/pods/limits.yaml", inContainer(podOf(name, `sleep 7654 & `+forever), fmt.Sprintf(
				"resources: {limits: {memory: %dMi, cpu: %dm}, requests: {memory: 16Mi, cpu: 100m}}", memory, cpu)))
		}
		limits(32, 200)
		m.await("the pod", isReady(name))
		group := m.sh(`cut -d: -f3 /proc/$(pgrep -xf "sleep 7654")/cgroup`)
		below := map[string]string{"cgroupfs": "/podrun/burstable/pod", "systemd": "/podrun.slice/podrun-burstable.slice/podrun-burstable-pod"}
		if !strings.HasPrefix(group, below[driver]) {
			t.Errorf("%s: the container is in %s", driver, group)
		}
		m.write("/etc/pods/free.yaml", podOf("free-"+driver, "sleep 7655 & "+forever))
		m.await("the pod without limits", isReady("free-"+driver))
		// The child takes more than there is. Its parent would go on.
		m.write("/etc/pods/greedy.yaml", inContainer(podOf("greedy-"+driver, `sleep 7656 & until [ -e /t/eat ]; do sleep 0.2; done
			sh -c 'x=$(head -c 64000000 /dev/zero | tr "\0" a)'; sleep 1000`, "restartPolicy: Never"), "resources: {limits: {memory: 32Mi}}"))
		m.await("the greedy pod", isReady("greedy-"+driver))
		memory, cpu := 32, 200
		verify := func(when string) {
			t.Helper()
			bytes, quota := fmt.Sprint(memory<<20), fmt.Sprint(cpu*100)+" 100000"
			for _, c := range []struct{ file, want string }{
				{"memory.max", bytes}, {"cpu.max", quota}, {"memory.oom.group", "1"},
				{"memory.high", "max"}, {"memory.min", "0"}, {"../memory.high", "max"}, {"../memory.min", "0"},
				{"../memory.max", bytes}, {"../cpu.max", quota}, {"cpu.weight", "4"}, {"memory.swap.max", "0"},
				{"../../../cpu.weight", all},
			} {
				if got := m.sh("cat /sys/fs/cgroup" + group + "/" + c.file); got != c.want {
					t.Errorf("%s, %s: %s of %s is %s, want %s", driver, when, c.file, group, got, c.want)
				}
			}
			// The number is nobody's: where it is not denied, there is no such device.
			const open = "rm -f /k; mknod /k c 200 77; ! (: </k) 2>&1"
			if got := m.sh("podrun exec " + name + " -- sh -c '" + open + "'"); !strings.Contains(got, "not permitted") {
				t.Errorf("%s, %s: a device that no pod has: %s", driver, when, got)
			}
			free := m.sh(`cd /sys/fs/cgroup$(cut -d: -f3 /proc/$(pgrep -xf "sleep 7655")/cgroup)
				cat memory.max memory.swap.max cpu.max cpu.weight memory.oom.group`)
			if free != "max\n0\nmax 100000\n1\n1" {
				t.Errorf("%s, %s: limits of a pod without any: %s", driver, when, free)
			}
			if got := m.sh(`cat /sys/fs/cgroup$(cut -d: -f3 /proc/$(pgrep -xf "sleep 7656")/cgroup)/memory.oom.group`); got != "1" {
				t.Errorf("%s, %s: memory.oom.group of the greedy one is %s", driver, when, got)
			}
		}
		verify("after the start")
		m.sh("systemctl daemon-reload; sleep 3") // it writes the cgroups after it has answered
		verify("after systemd's reload")
		memory, cpu = 48, 300
		limits(memory, cpu)
		m.await("the new limits", fmt.Sprintf("cd /sys/fs/cgroup%[1]s; grep %[2]d memory.max && grep %[3]d cpu.max && grep %[3]d ../cpu.max",
			group, memory<<20, cpu*100))
		verify("after a change in place")
		m.sh("systemctl daemon-reload; sleep 3")
		verify("after a change in place and systemd's reload")
		m.sh("touch /trace/eat")
		m.await("the container to end", fmt.Sprintf(
			`[ "$(podrun get pods greedy-%s -o jsonpath='{.status.containerStatuses[0].state.terminated.reason}')" = OOMKilled ]`, driver))
		if got := m.sh(fmt.Sprintf("podrun get pods greedy-%s -o jsonpath='{.status.containerStatuses[0].state.terminated.exitCode}'", driver)); got != "137" {
			t.Errorf("%s: exit code %s", driver, got)
		}
		if got := m.sh(`pgrep -xf "sleep 765[45]" | wc -l`); got != "2" {
			t.Errorf("%s: of the other pods run %s", driver, got)
		}
		if got := m.sh("systemctl list-units --failed --plain --no-legend 'podrun*'"); got != "" {
			t.Errorf("%s: systemd keeps %s", driver, got)
		}
		if got := m.sh("cat /sys/fs/cgroup" + group + "/memory.oom.group"); got != "1" {
			t.Errorf("%s: memory.oom.group at the end: %s", driver, got)
		}
	}
	m.sh("systemctl stop podrun; podrun down --all")
	m.await("nothing to be left", `! find /sys/fs/cgroup -type d -path '*pod*-*-*' -o -type d -path '*podrun/*/pod*' | grep .`)
}
