package oci

import (
	"fmt"
	"maps"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/pod"
)

// of returns a pod of containers with these resources; own are the pod's resources.
func of(own *v1.ResourceRequirements, containers ...v1.ResourceRequirements) *v1.Pod {
	p := &v1.Pod{}
	p.Spec.Resources = own
	for i, r := range containers {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: fmt.Sprint(i), Resources: r})
	}
	return p
}

func resourceCases() map[string]Input {
	guaranteed := requirements("500m", "64Mi", "500m", "64Mi")
	return map[string]Input{
		"guaranteed-v2": input(func(in *Input) { in.CgroupV2, in.Container.Resources = true, guaranteed }),
		"pod-limits":    input(func(in *Input) { in.Pod.Spec.Resources = &guaranteed }),
		"hugepages": input(func(in *Input) {
			in.Container.Resources = requirements("", "", "", "64Mi")
			in.Container.Resources.Limits["hugepages-2Mi"] = resource.MustParse("8Mi")
			in.Machine.PageSizes = []int64{1 << 30, 2 << 20}
		}),
		"hugepages-reserved": input(func(in *Input) {
			in.Container.Resources = requirements("", "", "", "64Mi")
			in.Container.Resources.Limits["hugepages-2Mi"] = resource.MustParse("8Mi")
			in.CgroupV2, in.Machine.LimitsReservations, in.Machine.PageSizes = true, true, []int64{1 << 30, 2 << 20}
		}),
		"hugepages-of-the-pod": input(func(in *Input) {
			in.Pod.Spec.Resources = new(requirements("", "", "", "64Mi"))
			in.Pod.Spec.Resources.Limits["hugepages-64Ki"] = resource.MustParse("128Ki")
			in.CgroupV2, in.Machine.PageSizes = true, []int64{64 << 10}
		}),
		"hugepages-not-asked-for": input(func(in *Input) { in.Machine.PageSizes = []int64{2 << 20} }),
		"own-cpus": input(func(in *Input) {
			in.Container.Resources, in.CPUs = requirements("2", "64Mi", "2", "64Mi"), "1,3"
		}),
		"shared-cpus": input(func(in *Input) { in.Container.Resources, in.CPUs = guaranteed, "0,2" }),
		"oom-score-clamped": input(func(in *Input) {
			in.Container.Resources, in.Machine.LowestOOMScoreAdj = guaranteed, 666
		}),
	}
}

// TestUpdate: what only version 2 has is in each update as at the start; version 1 is given none of it.
func TestUpdate(t *testing.T) {
	t.Parallel()
	for _, limit := range []string{"", "64Mi"} {
		for _, second := range []bool{true, false} {
			in := input(func(in *Input) {
				in.Container.Resources, in.CgroupV2, in.CPUs = requirements("", "", "", limit), second, "0,2"
				in.Machine.PageSizes, in.Machine.LimitsReservations = []int64{2 << 20}, true
			})
			want := map[string]string{"memory.oom.group": "1", "memory.swap.max": "0"}
			if !second {
				want = nil
			}
			all, cpus := Update(in), UpdateCPUs(in)
			for name, got := range map[string]*specs.LinuxResources{"of all": all, "of the CPUs": cpus} {
				if (got.Unified == nil) != (want == nil) || !maps.Equal(got.Unified, want) || got.CPU.Cpus != "0,2" {
					t.Errorf("limit %q, version 2 %t, update %s: %q on CPUs %s", limit, second, name, got.Unified, got.CPU.Cpus)
				}
			}
			if *all.CPU.Quota != -1 || (*all.Memory.Limit == -1) != (limit == "") {
				t.Errorf("limit %q: quota %d, memory %d", limit, *all.CPU.Quota, *all.Memory.Limit)
			}
			if cpus.CPU.Shares != nil || cpus.CPU.Quota != nil || cpus.Memory != nil {
				t.Errorf("more than CPUs: %+v", cpus)
			}
		}
	}
}

func TestPodResources(t *testing.T) {
	t.Parallel()
	none := requirements("", "", "", "")
	pages := requirements("", "", "", "1Mi")
	pages.Limits["hugepages-1Gi"] = resource.MustParse("2Gi")
	sidecar := of(nil, requirements("100m", "", "1", "10Mi"))
	sidecar.Spec.InitContainers = []v1.Container{
		{Name: "side", Resources: requirements("100m", "", "1", "20Mi"), RestartPolicy: new(v1.ContainerRestartPolicyAlways)},
		{Name: "init", Resources: requirements("500m", "", "1", "5Mi")},
	}
	for _, c := range []struct {
		name string
		pod  *v1.Pod
		pids int64
		want string
	}{
		{"nothing", of(nil, none, none), 0, "nothing"},
		{"processes only", of(nil, none), 50, "pids 50"},
		{"all limited", of(nil, requirements("1", "", "1", "10Mi"), requirements("100m", "5Mi", "500m", "20Mi")), 9,
			"shares 1126 quota 150000 memory 31457280 pids 9"},
		{"CPUs of its own", of(nil, requirements("1", "10Mi", "1", "10Mi"), requirements("100m", "5Mi", "100m", "5Mi")), 9,
			"shares 1126 memory 15728640 pids 9"},
		{"one without limits", of(nil, requirements("1", "", "1", "10Mi"), requirements("100m", "", "", "")), 0, "shares 1126"},
		{"one without a memory limit", of(nil, requirements("1", "", "1", "10Mi"), requirements("1", "", "1", "")), 0, "shares 2048 quota 200000"},
		{"the pod's own", of(new(requirements("2", "1Gi", "3", "2Gi")), none, requirements("1", "", "", "")), 0,
			"shares 2048 quota 300000 memory 2147483648"},
		{"the pod's own memory limit", of(new(requirements("", "", "", "1Gi")), none), 0, "shares 2 memory 1073741824"},
		{"the pod's own huge pages", of(&pages, none), 0, "shares 2 memory 1048576 1GB pages 2147483648"},
		{"a container's huge pages", of(nil, pages), 0, "shares 2 memory 1048576"},
		{"a sidecar and an init container", sidecar, 0, "shares 614 quota 200000 memory 31457280"},
	} {
		if got := said(PodResources(c.pod, PodRules{MaxPids: c.pids, StaticCPUs: c.name == "CPUs of its own"})); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestOOMPolicy: systemd keeps memory.oom.group of a container's scope, but of none that may have cgroups with limits of
// their own in it: systemd would end it whenever one of these runs out of memory. No annotation is the pod's.
func TestOOMPolicy(t *testing.T) {
	t.Parallel()
	on := func(change ...func(in *Input)) Input {
		return input(append([]func(*Input){func(in *Input) {
			in.Driver, in.CgroupV2, in.Machine.OOMPolicy = Systemd, true, true
			in.Machine.Capabilities = []string{"CAP_CHOWN", "CAP_SYS_ADMIN"}
			in.Pod.Annotations = map[string]string{"org.systemd.property.ExecStopPost": "'x'", "run.oci.hooks.stdin": "x"}
		}}, change...)...)
	}
	mounting := func(host, at string, readOnly bool) func(in *Input) {
		return func(in *Input) {
			in.Mounts = []pod.Mount{{HostPath: host, ContainerPath: at, ReadOnly: readOnly}}
		}
	}
	secured := func(sc v1.SecurityContext) func(in *Input) {
		return func(in *Input) { in.Container.SecurityContext = &sc }
	}
	adding := func(name v1.Capability) func(in *Input) {
		return secured(v1.SecurityContext{Capabilities: &v1.Capabilities{Add: []v1.Capability{name}}})
	}
	for name, c := range map[string]struct {
		in   Input
		want bool
	}{
		"version 2":                  {on(), true},
		"without a group":            {on(func(in *Input) { in.Group = "" }), true},
		"version 1":                  {on(func(in *Input) { in.CgroupV2 = false }), false},
		"cgroupfs":                   {on(func(in *Input) { in.Driver = Cgroupfs }), false},
		"an old systemd":             {on(func(in *Input) { in.Machine.OOMPolicy = false }), false},
		"privileged":                 {on(secured(v1.SecurityContext{Privileged: new(true)})), false},
		"SYS_ADMIN":                  {on(adding("SYS_ADMIN")), false},
		"ALL":                        {on(adding("ALL")), false},
		"another capability":         {on(adding("NET_ADMIN")), true},
		"the machine's cgroups":      {on(mounting("/sys/fs/cgroup", "/sys/fs/cgroup", false)), false},
		"a cgroup":                   {on(mounting("/sys/fs/cgroup/x.slice/", "/x", false)), false},
		"the machine's files":        {on(mounting("/", "/host", true)), false}, // the mounts below are not read-only
		"the machine's /sys":         {on(mounting("/sys", "/host", false)), false},
		"a directory":                {on(mounting("/data", "/sys/fs/cgroups", false)), true},
		"a directory named like it":  {on(mounting("/sys/fs/cgroups", "/x", false)), true},
		"instead of its own cgroups": {on(mounting("/data", "/sys/fs/cgroup", false)), true},
	} {
		want := map[string]string{}
		if c.in.Group != "" {
			want[AnnotationGroup] = c.in.Group
		}
		if c.want {
			want["org.systemd.property.OOMPolicy"] = "'kill'"
			want["org.systemd.property.CollectMode"] = "'inactive-or-failed'"
		}
		spec, err := Build(c.in)
		if err != nil || !maps.Equal(spec.Annotations, want) {
			t.Errorf("%s: %v, %q, want %q", name, err, spec.Annotations, want)
		}
	}
}

// TestRootResources: all pods together weigh what they may request.
func TestRootResources(t *testing.T) {
	t.Parallel()
	for cpus, want := range map[int]string{1: "shares 1024", 2: "shares 2048", 96: "shares 98304", 1000: "shares 262144"} {
		if got := said(RootResources(PodRules{CPUs: cpus})); got != want {
			t.Errorf("%d CPUs: %s, want %s", cpus, got, want)
		}
	}
}

// TestPodUpdate: what a pod does not limit is stated, too.
func TestPodUpdate(t *testing.T) {
	t.Parallel()
	none := requirements("", "", "", "")
	const free = " quota -1 memory 9223372036854775807 pids -1"
	for _, c := range []struct {
		name string
		pod  *v1.Pod
		pids int64
		want string
	}{
		{"nothing", of(nil, none), 0, "pids -1"},
		{"processes only", of(nil, none), 50, "pids 50"},
		{"requests only", of(nil, requirements("1", "1Mi", "", "")), 0, "shares 1024" + free},
		{"a CPU limit", of(nil, requirements("1", "", "2", "")), 9, "shares 1024 quota 200000 memory 9223372036854775807 pids 9"},
	} {
		if got := said(PodUpdate(c.pod, PodRules{MaxPids: c.pids})); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// said formats resources as text.
func said(r *specs.LinuxResources) string {
	if r == nil {
		return "nothing"
	}
	out := ""
	add := func(format string, args ...any) {
		if out != "" {
			out += " "
		}
		out += fmt.Sprintf(format, args...)
	}
	if r.CPU != nil {
		add("shares %d", *r.CPU.Shares)
		if r.CPU.Quota != nil {
			add("quota %d", *r.CPU.Quota)
		}
	}
	if r.Memory != nil {
		add("memory %d", *r.Memory.Limit)
	}
	for _, l := range r.HugepageLimits {
		add("%s pages %d", l.Pagesize, l.Limit)
	}
	if r.Pids != nil {
		add("pids %d", *r.Pids.Limit)
	}
	return out
}

func TestOOMScoreAdj(t *testing.T) {
	t.Parallel()
	none := requirements("", "", "", "")
	critical := of(nil, none)
	critical.Spec.PriorityClassName = nodeCritical
	sidecar := of(nil, requirements("", "500Mi", "", ""), requirements("", "100Mi", "", ""))
	sidecar.Spec.InitContainers = []v1.Container{{Name: "side", RestartPolicy: new(v1.ContainerRestartPolicyAlways)}, {Name: "init"}}
	for _, c := range []struct {
		name      string
		pod       *v1.Pod
		container *v1.Container
		want      int
	}{
		{"best effort", of(nil, none), nil, 1000},
		{"guaranteed", of(nil, requirements("1", "1Gi", "1", "1Gi")), nil, -997},
		{"critical", critical, nil, -997},
		{"half of the memory", of(nil, requirements("", "500Mi", "", "")), nil, 500},
		{"all of the memory", of(nil, requirements("", "1000Mi", "", "")), nil, 3},
		{"more than there is", of(nil, requirements("", "5000Mi", "", "")), nil, 3},
		{"no memory", of(nil, requirements("1", "", "", "")), nil, 999},
		{"a sidecar", sidecar, &sidecar.Spec.InitContainers[0], 900},
		{"an init container beside", sidecar, &sidecar.Spec.InitContainers[1], 999},
		{"the pod's own", of(new(requirements("", "500Mi", "", "")), requirements("", "100Mi", "", ""), none), nil, 700},
		{"the pod's own, guaranteed", of(new(requirements("1", "1Gi", "1", "1Gi")), none), nil, -997},
	} {
		container := c.container
		if container == nil {
			container = &c.pod.Spec.Containers[0]
		}
		if got := wantedOOMScoreAdj(c.pod, container, 1000<<20); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
