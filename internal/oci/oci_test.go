package oci

import (
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/oci/env"
	"podrun.io/podrun/internal/pod"
)

var update = flag.Bool("update", false, "write the golden files anew")

// input returns the input of a container that sets nothing, with an image that sets everything.
func input(change ...func(in *Input)) Input {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-node", UID: "0123456789abcdef0123456789abcdef"}}
	p.Spec.Containers = []v1.Container{{Name: "main", Image: "image:1"}}
	in := Input{
		Pod: p, Container: &p.Spec.Containers[0], ID: "fedcba9876543210fedcba9876543210", Group: "uid.0",
		Image: imagespec.ImageConfig{
			Entrypoint: []string{"/entry"}, Cmd: []string{"cmd", "$(NOT_EXPANDED)"}, WorkingDir: "/work",
			Env: []string{"PATH=/image/bin", "FROM=image"},
		},
		Namespaces: Namespaces{Network: "/run/sandboxes/s/net", IPC: "/run/sandboxes/s/ipc", UTS: "/run/sandboxes/s/uts"},
		Hostname:   "web-node",
		Machine:    Machine{Memory: 1 << 30, LowestOOMScoreAdj: -1000, SwapLimits: true},
	}
	for _, f := range change {
		f(&in)
	}
	var err error
	if in.Env, err = env.Resolve(pod.Inside{Pod: in.Pod, Container: in.Container}); err != nil {
		panic(err) // a mistake in the case
	}
	return in
}

// TestBuild compares whole specs, with one file each in testdata.
func TestBuild(t *testing.T) {
	t.Parallel()
	cases := map[string]Input{
		"plain":     input(),
		"cgroup-v2": input(func(in *Input) { in.CgroupV2 = true }),
		"systemd":   input(func(in *Input) { in.Driver = Systemd }),
		"systemd-v2": input(func(in *Input) {
			in.Driver, in.CgroupV2, in.Pod.UID = Systemd, true, "6f1ed2b0-3a52-4d3c-8f0e-0c8a4d6c2f11"
			in.Machine.OOMPolicy = true
			in.Container.Resources = requirements("250m", "64Mi", "1500m", "128Mi")
		}),
		"host-network": input(func(in *Input) {
			in.Pod.Spec.HostNetwork = true
			in.Hostname, in.Namespaces = "node", Namespaces{IPC: "/run/sandboxes/s/ipc"}
		}),
		"host-pid-ipc": input(func(in *Input) {
			in.Pod.Spec.HostPID, in.Pod.Spec.HostIPC = true, true
			in.Namespaces.IPC, in.Namespaces.Shm = "", "/dev/shm"
		}),
		"shared-processes": input(func(in *Input) {
			in.Pod.Spec.ShareProcessNamespace, in.Namespaces.PID = new(true), "/run/sandboxes/s/pid"
		}),
		"shared-memory": input(func(in *Input) { in.Namespaces.Shm = "/run/sandboxes/s/shm" }),
		"limits": input(func(in *Input) {
			in.Container.Resources = requirements("250m", "64Mi", "1500m", "128Mi")
		}),
		"everything": input(func(in *Input) {
			c := in.Container
			c.Command, c.Args = []string{"/bin/$(FROM)"}, []string{"$$(FROM)", "$(UNKNOWN)"}
			c.Env = []v1.EnvVar{{Name: "FROM", Value: "manifest"}, {Name: "BOTH", Value: "$(FROM)-$(PATH)"}}
			c.WorkingDir, c.TTY = "relative/dir", true
			in.User = specs.User{UID: 1000, GID: 1000, AdditionalGids: []uint32{1000, 27}}
			in.Mounts = []pod.Mount{
				{HostPath: "/pods/etc/hosts", ContainerPath: "/etc/hosts", Managed: true},
				{HostPath: "/pods/etc/resolv.conf", ContainerPath: "/etc/resolv.conf", Managed: true},
				{HostPath: "/data/deep", ContainerPath: "/data/a/b", ReadOnly: true},
				{HostPath: "/data", ContainerPath: "/data/"},
				{HostPath: "/slave", ContainerPath: "/slave", Propagation: v1.MountPropagationHostToContainer},
				{HostPath: "/all", ContainerPath: "/all", ReadOnly: true, RecursiveReadOnly: true},
				{HostPath: "/mine/hosts", ContainerPath: "/etc/hosts", ReadOnly: true},
				{HostPath: "/shm", ContainerPath: "/dev/shm"},
			}
		}),
	}
	maps.Copy(cases, securityCases())
	maps.Copy(cases, resourceCases())
	maps.Copy(cases, userCases())
	for name, in := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec, err := Build(in)
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.MarshalIndent(spec, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, '\n')
			path := filepath.Join("testdata", name+".json")
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("testdata - now +:\n%s", diff)
			}
		})
	}
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                           string
		command, args, entrypoint, cmd []string
		want                           string
	}{
		{"the image's", nil, nil, []string{"e"}, []string{"c"}, "e c"},
		{"args replace CMD", nil, []string{"a"}, []string{"e"}, []string{"c"}, "e a"},
		{"a command leaves out ENTRYPOINT and CMD", []string{"x"}, nil, []string{"e"}, []string{"c"}, "x"},
		{"command and args", []string{"x"}, []string{"a"}, []string{"e"}, []string{"c"}, "x a"},
		{"CMD alone", nil, nil, nil, []string{"c"}, "c"},
		{"args alone", nil, []string{"a"}, nil, []string{"c"}, "a"},
		{"an ENTRYPOINT that was reset", nil, nil, []string{""}, []string{"c"}, "c"},
		{"nothing", nil, nil, nil, nil, "no command: neither the container nor its image names one"},
		{"an empty command", []string{""}, nil, []string{"e"}, nil, "no command: neither the container nor its image names one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			spec, err := Build(input(func(in *Input) {
				in.Container.Command, in.Container.Args = c.command, c.args
				in.Image.Entrypoint, in.Image.Cmd = c.entrypoint, c.cmd
			}))
			var got string
			if err != nil {
				got = err.Error()
			} else {
				got = strings.Join(spec.Process.Args, " ")
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for want, in := range map[string]Input{
		"the pod's network namespace is missing": input(func(in *Input) { in.Namespaces.Network = "" }),
		"the pod's pid namespace is missing":     input(func(in *Input) { in.Pod.Spec.ShareProcessNamespace = new(true) }),
		"the pod's uts namespace is missing":     input(func(in *Input) { in.Namespaces.UTS = "" }),
		"the pod's ipc namespace is missing": input(func(in *Input) {
			in.Pod.Spec.HostNetwork, in.Namespaces.IPC = true, ""
		}),
	} {
		if _, err := Build(in); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func requirements(cpuRequest, memoryRequest, cpuLimit, memoryLimit string) v1.ResourceRequirements {
	list := func(cpu, memory string) v1.ResourceList {
		out := v1.ResourceList{}
		if cpu != "" {
			out[v1.ResourceCPU] = resource.MustParse(cpu)
		}
		if memory != "" {
			out[v1.ResourceMemory] = resource.MustParse(memory)
		}
		return out
	}
	return v1.ResourceRequirements{Requests: list(cpuRequest, memoryRequest), Limits: list(cpuLimit, memoryLimit)}
}

func TestCPU(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		request, limit string
		shares         uint64
		quota          int64 // 0: none
	}{
		{"", "", 2, 0}, {"0", "", 2, 0}, {"1m", "", 2, 0}, {"1", "", 1024, 0}, {"250m", "", 256, 0}, {"1000", "", 262144, 0},
		{"", "2", 2048, 200_000}, {"", "1m", 2, 1000}, {"", "100u", 2, 1000}, {"100m", "2", 102, 200_000}, {"0", "1", 2, 100_000},
		{"", "0", 2, 0}, {"1500m", "1500m", 1536, 150_000},
	} {
		got := resources(Input{Pod: &v1.Pod{}, Container: &v1.Container{Resources: requirements(c.request, "", c.limit, "")}}).CPU
		quota := int64(0)
		if got.Quota != nil {
			quota = *got.Quota
		}
		if *got.Shares != c.shares || quota != c.quota || (got.Period != nil) != (c.quota != 0) {
			t.Errorf("request %q, limit %q: shares %d, quota %d, want %d, %d", c.request, c.limit, *got.Shares, quota, c.shares, c.quota)
		}
	}
}

func TestSystemdCgroups(t *testing.T) {
	t.Parallel()
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a-b_c.d:e:f"}, Spec: v1.PodSpec{Containers: []v1.Container{{}}}}
	const id = "0123-4"
	for _, c := range []struct {
		resources          v1.ResourceRequirements
		pod, said, sibling string
	}{
		{requirements("", "", "", ""), `/podrun.slice/podrun-besteffort.slice/podrun-besteffort-poda_b\x5fc.d\x3ae\x3af.slice`, `podrun-besteffort-poda_b\x5fc.d\x3ae\x3af.slice:podrun:0123-4`, "podrun-5.scope"},
		{requirements("1", "", "", ""), `/podrun.slice/podrun-burstable.slice/podrun-burstable-poda_b\x5fc.d\x3ae\x3af.slice`, `podrun-burstable-poda_b\x5fc.d\x3ae\x3af.slice:podrun:0123-4`, "podrun-5.scope"},
		{requirements("1", "1Gi", "1", "1Gi"), `/podrun.slice/podrun-poda_b\x5fc.d\x3ae\x3af.slice`, `podrun-poda_b\x5fc.d\x3ae\x3af.slice:podrun:0123-4`, "podrun-5.scope"},
	} {
		p.Spec.Containers[0].Resources = c.resources
		if got := Systemd.OfPod(p); got != c.pod || !slices.Contains(CgroupsOf(string(p.UID)), got) {
			t.Errorf("the pod's is %s, among %q", got, CgroupsOf(string(p.UID)))
		}
		if got := Systemd.cgroupsPath(p, id); got != c.said || DriverOf(got) != Systemd {
			t.Errorf("a spec says %s", got)
		}
		if got := Systemd.OfContainer(p, id); got != c.pod+"/podrun-0123-4.scope" || !slices.Contains(CgroupsOfContainer(p, id), got) {
			t.Errorf("the container's is %s", got)
		}
		if got := CgroupsOfInstance(string(p.UID), "5"); !slices.Contains(got, c.pod+"/"+c.sibling) {
			t.Errorf("beside it may be %s", got)
		}
		if got := InstanceOf(c.sibling); got != "5" {
			t.Errorf("%s is of %s", c.sibling, got)
		}
	}
	said := Cgroupfs.cgroupsPath(p, id)
	if CgroupDir(said) != said || DriverOf(said) != Cgroupfs || !slices.Contains(CgroupsOfInstance(string(p.UID), id), said) || InstanceOf(id) != id || CgroupDir("") != "" {
		t.Errorf("without systemd: %s", said)
	}
}

func TestCgroupParent(t *testing.T) {
	t.Parallel()
	none, both := requirements("", "", "", ""), requirements("1", "1Gi", "1", "1Gi")
	for _, c := range []struct {
		name       string
		containers []v1.ResourceRequirements
		init       []v1.ResourceRequirements
		want       string
	}{
		{"nothing", []v1.ResourceRequirements{none, none}, nil, "/podrun/besteffort/podU"},
		{"zero is nothing", []v1.ResourceRequirements{requirements("0", "0", "", "")}, nil, "/podrun/besteffort/podU"},
		{"all limited to what they ask for", []v1.ResourceRequirements{both, both}, nil, "/podrun/podU"},
		{"the same in other words", []v1.ResourceRequirements{requirements("1000m", "1024Mi", "1", "1Gi")}, nil, "/podrun/podU"},
		{"one asks for nothing", []v1.ResourceRequirements{both, none}, nil, "/podrun/burstable/podU"},
		{"an init container asks for nothing", []v1.ResourceRequirements{both}, []v1.ResourceRequirements{none}, "/podrun/burstable/podU"},
		{"an init container too", []v1.ResourceRequirements{both}, []v1.ResourceRequirements{both}, "/podrun/podU"},
		{"limits above requests", []v1.ResourceRequirements{requirements("1", "1Gi", "2", "1Gi")}, nil, "/podrun/burstable/podU"},
		{"only requests", []v1.ResourceRequirements{requirements("1", "1Gi", "", "")}, nil, "/podrun/burstable/podU"},
		{"only memory", []v1.ResourceRequirements{requirements("", "1Gi", "", "1Gi")}, nil, "/podrun/burstable/podU"},
		{"limits without requests", []v1.ResourceRequirements{requirements("", "", "1", "1Gi")}, nil, "/podrun/podU"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "U"}}
			for _, r := range c.containers {
				p.Spec.Containers = append(p.Spec.Containers, v1.Container{Resources: r})
			}
			for _, r := range c.init {
				p.Spec.InitContainers = append(p.Spec.InitContainers, v1.Container{Resources: r})
			}
			got := Cgroupfs.OfPod(p)
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			found := false
			for _, place := range CgroupsOf("U") {
				found = found || place == got
			}
			if !found {
				t.Errorf("%s is not among %q", got, CgroupsOf("U"))
			}
		})
	}
}

// An image may have any number of variables; creating its containers takes no longer than reading
// them.
func TestManyVariablesOfAnImage(t *testing.T) {
	t.Parallel()
	const many = 300_000
	in := input(func(in *Input) {
		for i := range many {
			in.Image.Env = append(in.Image.Env, "V"+strconv.Itoa(i)+"=x")
		}
	})
	begun := time.Now()
	spec, err := Build(in)
	if err != nil || len(spec.Process.Env) < many {
		t.Fatal(len(spec.Process.Env), err)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
}

// TestRuntimesPaths: no volume is where the runtime works by path, unless the container has all rights anyway.
func TestRuntimesPaths(t *testing.T) {
	t.Parallel()
	for at, refused := range map[string]bool{
		"/": true, "//": true, "/dev": true, "dev/": true, "/x/../dev": true, "/dev/pts": true, "/dev/ptmx": true,
		"/dev/console": true, "/dev/null": true, "/proc": true, "/sys": true,
		"/dev/shm": false, "/dev/mqueue": false, "/dev/kvm": false, "/sys/fs/cgroup": false, "/proc/uptime": false,
		"/etc": false, "/var/run": false, "/tmp": false,
	} {
		volume := pod.Mount{HostPath: "/v", ContainerPath: at}
		host := pod.Mount{HostPath: filepath.Join("/", at), ContainerPath: at}
		managed := pod.Mount{HostPath: "/v", ContainerPath: at, Managed: true}
		build := func(m pod.Mount, privileged bool) error {
			_, err := Build(input(func(in *Input) {
				in.Mounts = []pod.Mount{m}
				in.Container.SecurityContext = &v1.SecurityContext{Privileged: &privileged}
			}))
			return err
		}
		if err := build(volume, false); (err != nil) != refused {
			t.Errorf("%s: %v", at, err)
		}
		if err := errors.Join(build(volume, true), build(host, false), build(managed, false)); err != nil {
			t.Errorf("%s: %v", at, err)
		}
	}
}
