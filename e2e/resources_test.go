package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/cgroups/v3/cgroup2"
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

// TestWeightOfAllPods: together, pods weigh what they may request, against whatever else the machine runs. That holds for
// a cgroup that a former podrun has left, too.
func TestWeightOfAllPods(t *testing.T) {
	n := newNode(t)
	n.write("a.yaml", inContainer(manifest("a", "Always", forever), "resources: {requests: {cpu: 100m}}"))
	n.serve()
	pid := n.mainPID(n.ready("a-n"), "c")
	check := func(when string) {
		t.Helper()
		n.await(when+" to weigh what all may request", func() error {
			shares := uint64(1024 * runtime.NumCPU())
			want := []string{fmt.Sprint(shares), fmt.Sprint(cgroup2.ConvertCPUSharesToCgroupV2Value(shares))}
			if got := podCgroupFile(t, pid, "cpu", "../../cpu.shares", "../../cpu.weight"); !slices.Contains(want, got) {
				return fmt.Errorf("weight %s, want one of %q", got, want)
			}
			return nil
		})
	}
	check("the cgroup of new pods")
	n.end(syscall.SIGTERM)
	for file, usual := range map[string]string{"/sys/fs/cgroup/cpu/podrun/cpu.shares": "1024", "/sys/fs/cgroup/podrun/cpu.weight": "100"} {
		if _, err := os.Stat(file); err == nil {
			must(t, os.WriteFile(file, []byte(usual), 0))
		}
	}
	n.serve()
	check("the cgroup of a former podrun")
}

// TestPodLimitsRemoved: when a pod's sandbox is made anew, its cgroup loses the limits that the pod had before.
func TestPodLimitsRemoved(t *testing.T) {
	n := newNode(t)
	sized := func(limits string) string {
		return inContainer(manifest("a", "Always", forever), "resources: {requests: {cpu: 100m}"+limits+"}")
	}
	n.write("a.yaml", sized(", limits: {memory: 128Mi, cpu: 500m}"))
	n.serve("--pod-max-pids=77")
	p := n.ready("a-n")
	limits := func(p *v1.Pod) (all []string) {
		pid := n.mainPID(p, "c")
		for _, of := range [][3]string{
			{"memory", "memory.limit_in_bytes", "memory.max"}, {"cpu", "cpu.cfs_quota_us", "cpu.max"}, {"pids", "pids.max", "pids.max"},
		} {
			first, _, _ := strings.Cut(podCgroupFile(t, pid, of[0], of[1], of[2]), " ")
			if bytes, err := strconv.ParseInt(first, 10, 64); err == nil && (bytes < 0 || bytes > 1<<60) {
				first = "max" // in version 1
			}
			all = append(all, first)
		}
		return all
	}
	if got := limits(p); !slices.Equal(got, []string{"134217728", "50000", "77"}) {
		t.Errorf("limits %q", got)
	}
	n.end(syscall.SIGTERM)
	pins, err := filepath.Glob(n.path("run", "sandboxes", "*", "ipc"))
	if err != nil || len(pins) != 1 {
		t.Fatalf("%q, %v", pins, err)
	}
	must(t, syscall.Unmount(pins[0], syscall.MNT_DETACH))
	n.write("a.yaml", sized(""))
	n.serve()
	again := n.awaitPod("a-n", "to run in another sandbox", func(now *v1.Pod) error {
		if now.Status.ContainerStatuses[0].ContainerID == p.Status.ContainerStatuses[0].ContainerID {
			return errors.New(asJSON(now.Status))
		}
		return isReady(now)
	})
	if got := limits(again); again.UID != p.UID || !slices.Equal(got, []string{"max", "max", "max"}) {
		t.Errorf("UID %s, was %s; limits %q", again.UID, p.UID, got)
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
