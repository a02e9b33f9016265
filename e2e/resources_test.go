package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// podCgroupFile reads a file of the cgroup above the process's own.
func podCgroupFile(t *testing.T, pid int, controller, v1Name, v2Name string) string {
	t.Helper()
	return cgroupFile(t, pid, controller, filepath.Join("..", v1Name), filepath.Join("..", v2Name))
}

func TestPodCgroup(t *testing.T) {
	n := newNode(t)
	m := inContainer(manifest("a", "Always", forever), "resources: {limits: {memory: 64Mi, cpu: 250m}}") + fmt.Sprintf("  - name: d\n    image: %s\n    command: [sh, -c, %s]\n    resources: {limits: {memory: 32Mi, cpu: 500m}, requests: {cpu: 100m}}\n", box, asJSON(forever))
	p, pid := n.mainProcess(m, "a", "--pod-max-pids=77")
	if p.Status.QOSClass != v1.PodQOSBurstable {
		t.Errorf("QoS class %s", p.Status.QOSClass)
	}
	if got := podCgroupFile(t, pid, "memory", "memory.limit_in_bytes", "memory.max"); got != strconv.Itoa(96<<20) {
		t.Errorf("the pod's memory limit %s", got)
	}
	if got := podCgroupFile(t, pid, "cpu", "cpu.cfs_quota_us", "cpu.max"); !strings.HasPrefix(got, "75000") {
		t.Errorf("the pod's CPU limit %s", got)
	}
	if got := podCgroupFile(t, pid, "cpu", "cpu.shares", "cpu.weight"); got != "358" && got != "45" {
		t.Errorf("the pod's weight %s", got)
	}
	if got := podCgroupFile(t, pid, "pids", "pids.max", "pids.max"); got != "77" {
		t.Errorf("the pod's processes %s", got)
	}
	// All burstable pods have the weight of each of them together; other tests have some, too.
	all, err := strconv.Atoi(podCgroupFile(t, pid, "cpu", "../cpu.shares", "../cpu.weight"))
	if err != nil || all < 14 {
		t.Errorf("the weight of burstable pods %d, %v", all, err)
	}
	if r := n.run("exec", "a", "-c", "c", "--", "sh", "-c", "i=0; while [ $i -lt 90 ]; do sleep 30 & i=$((i+1)); done"); !strings.Contains(r.stderr, "fork") {
		t.Errorf("more processes than allowed: %v", r)
	}
	// All best-effort pods together have the least weight that there is.
	_, pid = n.mainProcess(manifest("b", "Always", forever), "b")
	if got := podCgroupFile(t, pid, "cpu", "../cpu.shares", "../cpu.weight"); got != "2" && got != "1" {
		t.Errorf("the weight of best-effort pods %s", got)
	}
}

func TestPodResources(t *testing.T) {
	n := newNode(t)
	p, pid := n.mainProcess(manifest("a", "Always", forever, "resources: {limits: {cpu: 500m, memory: 48Mi}}"), "a")
	if p.Status.QOSClass != v1.PodQOSGuaranteed {
		t.Errorf("QoS class %s", p.Status.QOSClass)
	}
	for _, read := range []func(*testing.T, int, string, string, string) string{cgroupFile, podCgroupFile} {
		if got := read(t, pid, "memory", "memory.limit_in_bytes", "memory.max"); got != strconv.Itoa(48<<20) {
			t.Errorf("memory limit %s", got)
		}
		if got := read(t, pid, "cpu", "cpu.cfs_quota_us", "cpu.max"); !strings.HasPrefix(got, "50000") {
			t.Errorf("CPU limit %s", got)
		}
	}
}

func TestOOMScore(t *testing.T) {
	n := newNode(t)
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	must(t, err)
	lowest, err := strconv.Atoi(strings.TrimSpace(string(own)))
	must(t, err)
	for name, c := range map[string]struct {
		resources string
		want      int
	}{
		"a": {"resources: {}", 1000},
		"b": {"resources: {requests: {cpu: 10m}}", 999},
		"c": {"resources: {limits: {cpu: 100m, memory: 32Mi}}", -997},
	} {
		_, pid := n.mainProcess(inContainer(manifest(name, "Always", forever), c.resources), name)
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
		must(t, err)
		got, err := strconv.Atoi(strings.TrimSpace(string(text)))
		must(t, err)
		// Without CAP_SYS_RESOURCE none can be lower than podrun's own.
		if got != c.want && got != max(c.want, lowest) {
			t.Errorf("%s: %d, want %d (podrun's own is %d)", c.resources, got, c.want, lowest)
		}
	}
}

// TestHugePages: a container gets the huge pages that it asks for and no more, or does not start where it
// could not be held to that.
func TestHugePages(t *testing.T) {
	n := newNode(t)
	n.write("a.yaml", inContainer(manifest("a", "Always", forever), "resources: {limits: {memory: 32Mi, hugepages-2Mi: 2Mi}}"))
	n.serve()
	limit := "/sys/fs/cgroup/hugetlb" // a hierarchy of version 1
	if text, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		limit = ""
		if strings.Contains(string(text), "hugetlb") {
			limit = "/sys/fs/cgroup"
		}
	}
	pages, err := os.ReadFile("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
	must(t, err)
	if _, err := os.Stat(limit); err != nil {
		n.waits("a-n", "CreateContainerConfigError", "the cgroup controller hugetlb is not in use")
		return
	}
	if strings.TrimSpace(string(pages)) == "0" {
		n.waits("a-n", "CreateContainerConfigError", "the container asks for 2Mi, and the machine has 0")
		return
	}
	pid := n.mainPID(n.ready("a-n"), "c")
	for _, file := range []string{"hugetlb.2MB.max", "hugetlb.2MB.rsvd.max"} { // reservations only on version 2
		if got := cgroupFile(t, pid, "hugetlb", "hugetlb.2MB.limit_in_bytes", file); got != strconv.Itoa(2<<20) {
			t.Errorf("limit of huge pages %s, %s", file, got)
		}
	}
}
