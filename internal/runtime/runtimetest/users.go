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

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// testOwnUsers starts pods with their own user namespace: no other user of the machine has their
// IDs, they own their root filesystem, the IDs are the same across restarts, and they are released
// with the pod. If user namespaces are not supported, such a pod is refused.
func testOwnUsers(t *testing.T, s subject) {
	own := func(name string) *v1.Pod {
		p := s.newPod(name+"-node", "uid-"+name, "main", "other")
		p.Spec.HostUsers = new(false)
		return p
	}
	a, b := own("users-a"), own("users-b")
	if s.NoUsers {
		must(t, s.SavePod(a, "serve"))
		var reason *runtime.ReasonError
		if err := s.CreateSandbox(t.Context(), a, 0); !errors.As(err, &reason) ||
			reason.Reason != "FailedCreatePodSandBox" {
			t.Errorf("users that it cannot have: %v", err)
		}
		if o := s.inspect(t, a); len(o.Sandboxes) > 0 {
			t.Errorf("left: %+v", o.Sandboxes)
		}
		s.remove(t, a)
		return
	}
	start := s.ready(t, a)
	main := s.start(t, start)
	second := start
	second.Container = &a.Spec.Containers[1]
	other := s.start(t, second)
	theirs := s.start(t, s.ready(t, b))
	if s.Runs {
		first := s.firstUser(t, main)
		if first == 0 || s.firstUser(t, other) != first || s.firstUser(t, theirs) == first {
			t.Errorf("users begin at %d and %d in one pod, at %d in another",
				first, s.firstUser(t, other), s.firstUser(t, theirs))
		}
		var process syscall.Stat_t
		must(t, syscall.Stat(filepath.Join("/proc", strconv.Itoa(main.PID)), &process))
		if int(process.Uid) != first || int(process.Gid) != first {
			t.Errorf("on the machine its process is %d:%d's, want %d", process.Uid, process.Gid, first)
		}
		if got := s.output(t, main.ID,
			"touch /new; stat -c %u:%g / /bin/busybox /new /dev/shm",
		); got != "0:0\n0:0\n0:0\n0:0" {
			t.Errorf("files of root's are %q", got)
		}
		s.output(t, main.ID, "echo shared >/dev/shm/x")
		if got := s.output(t, other.ID, "cat /dev/shm/x"); got != "shared" {
			t.Errorf("/dev/shm: %q", got)
		}
		s.Exit(t, main.ID, 3)
		s.ended(t, start)
		start.Attempt = 1
		if now := s.firstUser(t, s.start(t, start)); now != first {
			t.Errorf("after a restart its users begin at %d, and did at %d", now, first)
		}
	}
	s.remove(t, a)
	if got := s.instance(t, runtime.Start{Pod: b, Container: &b.Spec.Containers[0]}); got.State != pod.Running {
		t.Errorf("the other pod's went with the pod: %+v", got)
	}
	s.remove(t, b)
}

// firstUser returns the user ID on the host that is root in the instance.
func (s subject) firstUser(t *testing.T, c pod.Container) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(c.PID), "uid_map"))
	must(t, err)
	fields := strings.Fields(string(text))
	if len(fields) != 3 || fields[0] != "0" || fields[2] != "65536" {
		t.Fatalf("%s: uid_map %q", c.Name, text)
	}
	first, err := strconv.Atoi(fields[1])
	must(t, err)
	return first
}
