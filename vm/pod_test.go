package vm

import (
	"fmt"
	"strings"
	"testing"
)

// forever is a script that runs until it is told to end.
const forever = `trap "exit 0" TERM; while :; do sleep 1000 & wait; done`

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

// TestLimits: limits are in the cgroups of a pod and of its container, with both drivers, and a child's end for
// want of memory ends the container.
func TestLimits(t *testing.T) {
	m := bootServing(t)
	for _, driver := range []string{"cgroupfs", "systemd"} {
		m.sh("systemctl stop podrun; rm -f /etc/pods/*; podrun down --all")
		m.enable("--cgroup-driver", driver)
		name := "limits-" + driver
		m.write("/etc/pods/limits.yaml", inContainer(podOf(name, `sleep 7654 & `+forever),
			"resources: {limits: {memory: 32Mi, cpu: 200m}, requests: {memory: 16Mi, cpu: 100m}}"))
		m.await("the pod", isReady(name))
		group := m.sh(`cut -d: -f3 /proc/$(pgrep -xf "sleep 7654")/cgroup`)
		for _, c := range []struct{ file, want string }{
			{"memory.max", "33554432"}, {"cpu.max", "20000 100000"}, {"memory.oom.group", "1"},
			{"../memory.max", "33554432"}, {"../cpu.max", "20000 100000"}, {"cpu.weight", "4"}, {"memory.swap.max", "0"},
		} {
			if got := m.sh("cat /sys/fs/cgroup" + group + "/" + c.file); got != c.want {
				t.Errorf("%s: %s of %s is %s, want %s", driver, c.file, group, got, c.want)
			}
		}
		below := map[string]string{"cgroupfs": "/podrun/burstable/pod", "systemd": "/podrun.slice/podrun-burstable.slice/podrun-burstable-pod"}
		if !strings.HasPrefix(group, below[driver]) {
			t.Errorf("%s: the container is in %s", driver, group)
		}
		m.write("/etc/pods/free.yaml", podOf("free-"+driver, "sleep 7655 & "+forever))
		m.await("the pod without limits", isReady("free-"+driver))
		if got := m.sh(`cd /sys/fs/cgroup$(cut -d: -f3 /proc/$(pgrep -xf "sleep 7655")/cgroup); cat memory.max memory.swap.max cpu.max cpu.weight`); got != "max\n0\nmax 100000\n1" {
			t.Errorf("%s: limits of a pod without any: %s", driver, got)
		}
		// The child takes more than there is. Its parent would go on.
		m.write("/etc/pods/greedy.yaml", inContainer(podOf("greedy-"+driver, `sh -c 'x=$(head -c 64000000 /dev/zero | tr "\0" a)'; sleep 1000`,
			"restartPolicy: Never"), "resources: {limits: {memory: 32Mi}}"))
		m.await("the container to end", fmt.Sprintf(
			`[ "$(podrun get pods greedy-%s -o jsonpath='{.status.containerStatuses[0].state.terminated.reason}')" = OOMKilled ]`, driver))
	}
	m.sh("systemctl stop podrun; podrun down --all")
	m.await("nothing to be left", `! find /sys/fs/cgroup -type d -path '*pod*-*-*' -o -type d -path '*podrun/*/pod*' | grep .`)
}
