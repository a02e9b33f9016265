package vm

import "testing"

// TestStaticCPUs: CPUs of a container's own, with both drivers; also after systemd has read its units again.
func TestStaticCPUs(t *testing.T) {
	m := bootServing(t)
	m.write("/etc/node.yaml", "cpuPolicy: static\nreservedCPUs: 0\n")
	for _, driver := range []string{"cgroupfs", "systemd"} {
		m.sh("systemctl stop podrun; rm -f /etc/pods/*; podrun down --all")
		m.enable("--cgroup-driver", driver, "--node-config", "/etc/node.yaml")
		shared, own := "shared-"+driver, "own-"+driver
		on := func(pod, want string) {
			t.Helper()
			m.await(pod+" on "+want, isReady(pod)+` && [ "$(podrun exec `+pod+` -- sed -n 's/^Cpus_allowed_list:.//p' /proc/1/status)" = `+want+` ]`)
		}
		m.write("/etc/pods/shared.yaml", podOf(shared, forever))
		on(shared, "0-1")
		text := inContainer(podOf(own, forever), "resources: {limits: {memory: 32Mi, cpu: 1}}")
		m.write("/etc/pods/own.yaml", text)
		on(own, "1")
		on(shared, "0")
		m.sh("systemctl daemon-reload")
		on(own, "1")
		on(shared, "0")
		m.sh("systemctl restart podrun")
		on(own, "1")
		on(shared, "0")
		m.sh("rm /etc/pods/own.yaml")
		on(shared, "0-1")
	}
	// After a reboot the run directory is gone, and the CPUs are chosen anew.
	m.write("/etc/pods/again.yaml", inContainer(podOf("again", forever), "resources: {limits: {memory: 32Mi, cpu: 1}}"))
	m.await("the pod", isReady("again"))
	m.reboot()
	m.await("the pod on its CPU", isReady("again")+` && [ "$(podrun exec again -- sed -n 's/^Cpus_allowed_list:.//p' /proc/1/status)" = 1 ]`)
	m.sh("systemctl stop podrun; podrun down --all")
}
