package containerd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/checkpointed"
	"podrun.io/podrun/internal/runtime/containerd/daemontest"
)

// member is a container of a pod whose resources change, and its newest instance.
type member struct {
	rig
	pod.Container
}

// limited returns running containers with these limits of memory, "" for none, and with the pod's own.
func limited(t *testing.T, whole string, limits ...string) []member {
	t.Helper()
	r := newRig(t, daemontest.Embedded(t), "sleep 1000", func(p *v1.Pod) {
		for i := range limits[1:] {
			p.Spec.Containers = append(p.Spec.Containers, *p.Spec.Containers[0].DeepCopy())
			p.Spec.Containers[i+1].Name = fmt.Sprintf("other-%d", i)
		}
		for i, limit := range limits {
			limitMemory(&p.Spec.Containers[i].Resources, limit)
		}
		if whole != "" {
			p.Spec.Resources = &v1.ResourceRequirements{}
			limitMemory(p.Spec.Resources, whole)
		}
	})
	var out []member
	for i := range limits {
		m := member{rig: r}
		m.start.Container = &r.start.Pod.Spec.Containers[i]
		m.Container = m.run(t)
		out = append(out, m)
	}
	return out
}

func limitMemory(r *v1.ResourceRequirements, size string) {
	if size != "" {
		r.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse(size)}
		r.Requests = r.Limits
	}
}

// limit changes the container's limit in the manifest.
func (m *member) limit(size string) { limitMemory(&m.start.Container.Resources, size) }

// limitCPU changes the container's limit of CPU in the manifest.
func (m *member) limitCPU(size string) {
	m.start.Container.Resources = v1.ResourceRequirements{
		Limits:   v1.ResourceList{v1.ResourceMemory: resource.MustParse("16Mi"), v1.ResourceCPU: resource.MustParse(size)},
		Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")},
	}
}

// resize returns what a resize of the running instance to the manifest returns.
func (m *member) resize(t *testing.T) error {
	return m.ResizeContainer(t.Context(), m.ID, m.start.Pod, m.start.Container, "")
}

// pending reports whether the instance is to be resized, as package plan sees it.
func (m *member) pending(t *testing.T) bool {
	t.Helper()
	got := find(t, m.Runtime, m.key, m.Name, m.Attempt)
	return got.Resizing != "" || got.Resources != pod.ResourcesOf(m.start.Pod, m.start.Container)
}

// retry is resize, if that is still to be done.
func (m *member) retry(t *testing.T) error {
	t.Helper()
	if !m.pending(t) {
		t.Fatal("nothing resizes it")
	}
	return m.resize(t)
}

// sh runs a line of sh in the container.
func (m *member) sh(t *testing.T, line string) {
	t.Helper()
	if code, err := m.Exec(t.Context(), m.ID, []string{"sh", "-c", line}, runtime.ExecIO{}); err != nil || code != 0 {
		t.Errorf("%s: %s: %d, %v", m.Name, line, code, err)
	}
}

// fill uses as many MiB of memory, until the file of that name in /dev/shm is removed.
func (m *member) fill(t *testing.T, file string, size int) {
	t.Helper()
	m.sh(t, fmt.Sprintf("dd if=/dev/zero of=/dev/shm/%s bs=1M count=%d", file, size))
}

// again kills the instance and starts the next one.
func (m *member) again(t *testing.T) {
	t.Helper()
	if err := m.SignalContainer(t.Context(), m.ID, "KILL"); err != nil {
		t.Fatal(err)
	}
	daemontest.Eventually(t, "the instance is reaped", func() bool { return m.ReapContainer(t.Context(), m.ID, "") == nil })
	m.Container = m.run(t)
}

// survives checks that the instance runs and has been killed neither as a whole nor in part.
func (m *member) survives(t *testing.T) {
	t.Helper()
	if got := find(t, m.Runtime, m.key, m.Name, m.Attempt); got.State != pod.Running || got.PID != m.PID {
		t.Errorf("killed: %+v", got)
	}
}

// podHolds checks the memory limit of the pod's own cgroup.
func (m *member) podHolds(t *testing.T, want string) {
	t.Helper()
	dir := "podrun/burstable/pod" + string(m.UID)
	file := filepath.Join("/sys/fs/cgroup/memory", dir, "memory.limit_in_bytes")
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil { // v2
		file = filepath.Join("/sys/fs/cgroup", dir, "memory.max")
	}
	got, err := os.ReadFile(file)
	if bytes := resource.MustParse(want); err != nil || strings.TrimSpace(string(got)) != bytes.AsDec().String() {
		t.Errorf("the pod's limit is %q, %v, not %s", got, err, want)
	}
}

// TestPodShrinksLast makes the limits of two containers smaller, one of which uses too much memory at first: the
// limit of their pod is never below the sum of what they have.
func TestPodShrinksLast(t *testing.T) {
	both := limited(t, "", "48Mi", "48Mi")
	main, greedy := both[0], both[1]
	main.podHolds(t, "96Mi")
	greedy.fill(t, "full", 36)
	main.limit("24Mi")
	greedy.limit("24Mi")
	if err := main.resize(t); err != nil {
		t.Fatal(err)
	}
	if err := greedy.resize(t); err == nil {
		t.Error("a limit below what is used is accepted")
	}
	main.podHolds(t, "72Mi")
	main.fill(t, "own", 20) // within its limit
	main.survives(t)
	greedy.survives(t)
	greedy.sh(t, "rm /dev/shm/full")
	if err := greedy.resize(t); err != nil {
		t.Error(err)
	}
	main.podHolds(t, "48Mi")
	greedy.limit("40Mi")
	if err := greedy.resize(t); err != nil {
		t.Error(err)
	}
	main.podHolds(t, "64Mi")
}

// TestStartBesideARefusedResize starts containers in a pod of which one uses more memory than all will have.
func TestStartBesideARefusedResize(t *testing.T) {
	both := limited(t, "", "16Mi", "64Mi")
	main, greedy := both[0], both[1]
	greedy.fill(t, "full", 48)
	greedy.limit("16Mi")
	if err := greedy.resize(t); err == nil {
		t.Error("a limit below what is used is accepted")
	}
	main.again(t)
	main.fill(t, "own", 8) // within its limit
	greedy.survives(t)
	main.podHolds(t, "80Mi")
	// What an instance that has ended wrote to memory stays in use, by the pod.
	greedy.again(t)
	main.survives(t)
	main.podHolds(t, "80Mi")
	if err := greedy.retry(t); err == nil {
		t.Error("a limit of the pod below what is used is accepted")
	}
	main.podHolds(t, "80Mi")
	greedy.sh(t, "rm /dev/shm/full")
	if err := greedy.retry(t); err != nil {
		t.Error(err)
	}
	main.podHolds(t, "32Mi")
	if main.pending(t) || greedy.pending(t) {
		t.Error("it is resized again and again")
	}
}

// withOneCPUEach returns the two running containers of a pod.
func withOneCPUEach(t *testing.T) (main, other member) {
	t.Helper()
	both := limited(t, "", "16Mi", "16Mi")
	main, other = both[0], both[1]
	main.limitCPU("1")
	other.limitCPU("1")
	if err := errors.Join(main.resize(t), other.resize(t)); err != nil {
		t.Fatal(err)
	}
	return main, other
}

// TestPodThatCannotShrink makes a container smaller whose pod cannot be, because another container has more than is
// recorded.
func TestPodThatCannotShrink(t *testing.T) {
	quotas, err := filepath.Glob("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
	if err != nil || len(quotas) == 0 {
		t.Skip("version 2 lets a pod have less than its containers")
	}
	main, other := withOneCPUEach(t)
	main.limitCPU("500m")
	dir := "/sys/fs/cgroup/cpu/podrun/burstable/pod" + string(other.UID) + "/" + other.ID
	set := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "cpu.cfs_quota_us"), []byte(text), 0); err != nil {
			t.Fatal(err)
		}
	}
	set("200000")
	if err := main.resize(t); err == nil {
		t.Error("the pod has more than it should, and nobody knows")
	}
	set("100000")
	if err := main.retry(t); err != nil {
		t.Error(err)
	}
}

// cutOff is a driver of a podrun that does not learn that its resize has succeeded.
type cutOff struct{ runtime.Driver }

func (c cutOff) ResizeContainer(ctx context.Context, to runtime.Resize) error {
	return errors.Join(c.Driver.ResizeContainer(ctx, to), context.Canceled)
}

// TestResizeThatIsNotRecorded takes back a resize that podrun did not live to record: until it is undone, other
// containers start beside what the instance really has.
func TestResizeThatIsNotRecorded(t *testing.T) {
	main, other := withOneCPUEach(t)
	other.limitCPU("3")
	ends := checkpointed.New(checkpointed.Options{
		Driver: cutOff{main.Driver}, Store: main.Store(), Boot: func() string { return main.Boot },
		Dirs: main.Driver.Dirs, Log: main.Driver.Log,
	})
	err := ends.ResizeContainer(t.Context(), other.ID, other.start.Pod, other.start.Container, "")
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	other.limitCPU("1")
	main.again(t)
	if err := other.retry(t); err != nil {
		t.Error(err)
	}
	if other.pending(t) {
		t.Error("it is resized again and again")
	}
}

// TestPodsOwnLimitShrinks makes the limit of a pod smaller whose containers have none, and together use too much at
// first.
func TestPodsOwnLimitShrinks(t *testing.T) {
	both := limited(t, "64Mi", "", "")
	main, greedy := both[0], both[1]
	main.fill(t, "own", 20)
	greedy.fill(t, "full", 20)
	limitMemory(main.start.Pod.Spec.Resources, "32Mi")
	if err := main.resize(t); err != nil {
		t.Error(err)
	}
	if err := greedy.resize(t); err == nil {
		t.Error("a limit of the pod below what is used is accepted")
	}
	main.podHolds(t, "64Mi")
	greedy.sh(t, "rm /dev/shm/full")
	if err := greedy.resize(t); err != nil {
		t.Error(err)
	}
	main.podHolds(t, "32Mi")
}
