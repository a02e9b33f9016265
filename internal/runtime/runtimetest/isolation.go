package runtimetest

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/runtime"
)

// testSecurity starts a container with a security context, and one whose security context cannot be
// satisfied.
func testSecurity(t *testing.T, s subject) {
	if !s.Runs {
		t.Skip("commands do not run in this runtime")
	}
	p := s.newPod("web-node", "uid-security", "main", "root")
	p.Spec.SecurityContext = &v1.PodSecurityContext{
		RunAsUser: new(int64(0)), RunAsGroup: new(int64(9)), SupplementalGroups: []int64{8},
	}
	p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{
		RunAsUser: new(int64(7)), RunAsNonRoot: new(true),
		AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
		Capabilities:   &v1.Capabilities{Drop: []v1.Capability{"ALL"}},
		SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault},
	}
	p.Spec.Containers[0].Command = []string{"sleep", "1000"}
	p.Spec.Containers[1].SecurityContext = &v1.SecurityContext{RunAsNonRoot: new(true)}
	start := s.ready(t, p)
	c := s.start(t, start)
	if got := s.output(t, c.ID, "id -u; id -g; id -G"); got != "7\n9\n9 8" {
		t.Errorf("ids %q", got)
	}
	if got := s.output(t, c.ID,
		"grep -E 'NoNewPrivs|Seccomp:|CapBnd' /proc/1/status",
	); got != "CapBnd:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2" {
		t.Errorf("status %q", got)
	}
	if s.exec(t, c.ID, "touch /tmp/x") == 0 {
		t.Error("the root filesystem can be written to")
	}
	start.Container = &p.Spec.Containers[1]
	var reason *runtime.ReasonError
	if err := s.StartContainer(t.Context(), start); !errors.As(err, &reason) ||
		reason.Reason != "CreateContainerConfigError" {
		t.Errorf("root where nobody may be: %v", err)
	}
	if o := s.inspect(t, p); len(o.Containers) != 1 {
		t.Errorf("it left something: %+v", o.Containers)
	}
	s.remove(t, p)
}

func testHostNamespaces(t *testing.T, s subject) {
	if !s.Runs {
		t.Skip("commands do not run in this runtime")
	}
	p := s.newPod("web-node", "uid-host", "main")
	p.Spec.HostPID, p.Spec.HostIPC = true, true
	c := s.start(t, s.ready(t, p))
	for _, ns := range []string{"pid", "ipc", "net"} {
		own, err := os.Readlink("/proc/self/ns/" + ns)
		must(t, err)
		if got := s.output(t, c.ID, "readlink /proc/self/ns/"+ns); (got == own) != (ns != "net") {
			t.Errorf("%s: %s, the host's is %s", ns, got, own)
		}
	}
	if !s.inspect(t, p).Sandboxes[0].Ready {
		t.Error("the sandbox is not ready")
	}
	s.remove(t, p)
}

func testSysctls(t *testing.T, s subject) {
	if !s.Runs {
		t.Skip("commands do not run in this runtime")
	}
	p := s.newPod("web-node", "uid-sysctl", "one", "two")
	p.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{
		{Name: "net.ipv4.ip_local_port_range", Value: "20000 30000"}, {Name: "kernel.shm_rmid_forced", Value: "1"},
	}}
	start := s.ready(t, p)
	one := s.start(t, start)
	if got := s.output(t, one.ID,
		"cd /proc/sys; cat net/ipv4/ip_local_port_range kernel/shm_rmid_forced net/ipv4/ip_unprivileged_port_start",
	); got != "20000\t30000\n1\n0" {
		t.Errorf("%q", got)
	}
	// Both containers have the same shared memory.
	start.Container = &p.Spec.Containers[1]
	two := s.start(t, start)
	s.output(t, one.ID, "echo shared >/dev/shm/x")
	if got := s.output(t, two.ID, "cat /dev/shm/x"); got != "shared" {
		t.Errorf("/dev/shm: %q", got)
	}
	s.remove(t, p)
	for value, want := range map[string]string{
		"net.core.somaxconn": "SysctlForbidden",
		"kernel.panic":       "SysctlForbidden",
	} {
		p.Spec.SecurityContext.Sysctls[1] = v1.Sysctl{Name: value, Value: "1"}
		must(t, s.SavePod(p, "serve"))
		var reason *runtime.ReasonError
		if err := s.CreateSandbox(t.Context(), p, 0); !errors.As(err, &reason) || reason.Reason != want {
			t.Errorf("%s: %v", value, err)
		}
		s.remove(t, p)
	}
	p.Spec.SecurityContext.Sysctls[1] = v1.Sysctl{Name: "net.ipv4.tcp_syncookies", Value: "x"}
	must(t, s.SavePod(p, "serve"))
	if err := s.CreateSandbox(t.Context(), p, 0); err == nil || len(s.inspect(t, p).Sandboxes) > 0 {
		t.Errorf("a bad value: %v, %+v", err, s.inspect(t, p).Sandboxes)
	}
	s.remove(t, p)
}

func testSharedProcesses(t *testing.T, s subject) {
	if !s.Runs {
		t.Skip("commands do not run in this runtime")
	}
	p := s.newPod("web-node", "uid-processes", "one", "two")
	p.Spec.ShareProcessNamespace = new(true)
	start := s.ready(t, p)
	one := s.start(t, start)
	start.Container = &p.Spec.Containers[1]
	two := s.start(t, start)
	if got := s.output(t, one.ID,
		"cat /proc/1/comm; grep -E 'Uid|CapBnd|NoNewPrivs' /proc/1/status; ls /proc/1/root 2>/dev/null | wc -l",
	); got != "pause\nUid:\t65535\t65535\t65535\t65535\nCapBnd:\t0000000000000000\nNoNewPrivs:\t1\n0" {
		t.Errorf("the first process: %q", got)
	}
	// The pause process reaps orphans.
	s.output(t, one.ID, "(sh -c 'sleep 0.05 & echo $! >/dev/shm/orphan')")
	eventually(t, "an orphan is reaped", func() bool {
		return s.exec(t, two.ID, "! test -e /proc/$(cat /dev/shm/orphan)") == 0
	})
	// A container ends alone, with all of its processes, whether it is killed or exits by itself.
	for attempt, end := range []func(){
		func() { must(t, s.SignalContainer(t.Context(), two.ID, "KILL")) },
		func() { s.Exit(t, two.ID, 5) },
	} {
		if attempt > 0 {
			start.Attempt = attempt
			two = s.start(t, start)
		}
		s.output(t, two.ID, "sleep 1234 >/dev/null 2>&1 & true")
		end()
		s.ended(t, start)
		eventually(t, "its processes have exited", func() bool {
			return s.exec(t, one.ID, "! ps | grep -q '[s]leep 1234'") == 0
		})
	}
	start.Attempt = 0
	if c := s.inspect(t, p); !c.Sandboxes[0].Ready {
		t.Error("the sandbox is not ready")
	}
	// When the pause process exits, all others are killed, and the sandbox is not ready any more.
	s.killPause(t, p)
	start.Container = &p.Spec.Containers[0]
	s.ended(t, start)
	if c := s.inspect(t, p); c.Sandboxes[0].Ready {
		t.Error("a sandbox without its first process is ready")
	}
	s.remove(t, p)
}

// killPause kills the first process of the pod's process namespace, whatever the cgroup driver.
func (s subject) killPause(t *testing.T, p *v1.Pod) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cgroup")
	must(t, err)
	for _, path := range all {
		text, err := os.ReadFile(path)
		name := strings.ReplaceAll(string(text), "_", "-") // the - of a UID is one in the name of a slice
		if err == nil && strings.Contains(name, "pod"+string(p.UID)) && strings.Contains(name, "/pause-") {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			must(t, err)
			must(t, syscall.Kill(pid, syscall.SIGKILL))
			return
		}
	}
	t.Fatal("no first process")
}
