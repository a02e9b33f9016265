package containerd_test

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemontest"
)

// confinement prints what a process of a container is confined by, and what it is given.
const confinement = `grep -E '^(Uid|Gid|Groups|Umask|Sig[BIC]|Cap|NoNewPrivs|Seccomp|Speculation)' /proc/self/status
cat /proc/self/cgroup /proc/self/limits /proc/self/oom_score_adj /proc/self/attr/current 2>&1
for n in cgroup ipc mnt net pid user uts; do readlink /proc/self/ns/$n; done
env | sort; pwd; ls /proc/self/fd; cat; readlink /proc/self/root`

// TestBriefIsConfinedAlike compares what a command is confined by and given if runc is called directly
// and if the shim calls it.
func TestBriefIsConfinedAlike(t *testing.T) {
	t.Parallel()
	d := daemontest.Embedded(t)
	for name, context := range map[string]*v1.SecurityContext{
		"default":    nil,
		"privileged": {Privileged: new(true)},
		"restricted": {
			RunAsUser: new(int64(1234)), RunAsGroup: new(int64(2345)), AllowPrivilegeEscalation: new(false),
			ReadOnlyRootFilesystem: new(true),
			Capabilities:           &v1.Capabilities{Drop: []v1.Capability{"ALL"}, Add: []v1.Capability{"NET_BIND_SERVICE"}},
			SeccompProfile:         &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault},
		},
		"unconfined": {SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeUnconfined}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, d, "sleep 1000")
			r.start.Container.SecurityContext = context
			r.start.Container.WorkingDir = "/tmp"
			c := r.run(t)
			output := func(brief bool) string {
				var out bytes.Buffer
				streams := runtime.ExecIO{Stdout: &out, Stderr: &out, Brief: brief}
				if code, err := r.Exec(t.Context(), c.ID, []string{"sh", "-c", confinement}, streams); err != nil {
					t.Fatal(code, err)
				}
				return out.String()
			}
			if shim, brief := output(false), output(true); shim != brief || len(shim) < 1000 {
				t.Errorf("by the shim:\n%s\nby runc alone:\n%s", shim, brief)
			}
		})
	}
}

// TestBriefKilledAtAnyTime ends commands at any time of their start: nothing of them is left.
func TestBriefKilledAtAnyTime(t *testing.T) {
	t.Parallel()
	d := daemontest.Embedded(t)
	r := newRig(t, d, "sleep 1000")
	c := r.run(t)
	for i := range 30 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
		code, err := r.Exec(ctx, c.ID, []string{"sleep", "2345"}, runtime.ExecIO{Brief: true})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %d ms: %d, %v", i, code, err)
		}
	}
	if got := r.in(t, c.ID, "ps | grep '[s]leep 2345' || true"); got != "" {
		t.Errorf("left: %s", got)
	}
	if left, err := filepath.Glob(d.Dirs.Fifos() + "/*/*"); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
}

// TestBriefCallsRuncItself checks in which cases the shim is not asked.
func TestBriefCallsRuncItself(t *testing.T) {
	for kind, start := range daemontest.Kinds {
		t.Run(kind, func(t *testing.T) {
			d := start(t)
			r := newRig(t, d, "sleep 1000")
			c := r.run(t)
			for name, e := range map[string]struct {
				streams runtime.ExecIO
				want    bool
			}{
				"brief":     {runtime.ExecIO{Brief: true}, kind == "embedded"},
				"not brief": {runtime.ExecIO{}, false},
				"with TTY":  {runtime.ExecIO{Brief: true, TTY: true}, false},
			} {
				if got := r.callsRunc(t, c.ID, e.streams); got != e.want {
					t.Errorf("%s: %t, want %t", name, got, e.want)
				}
			}
			t.Setenv("PATH", t.TempDir()) // podrun finds no runc, but its containerd does
			code, err := r.Exec(t.Context(), c.ID, []string{"sh", "-c", "exit 8"}, runtime.ExecIO{Brief: true})
			if code != 8 || err != nil {
				t.Errorf("without runc: %d, %v", code, err)
			}
		})
	}
}

// callsRunc reports whether a command is run without the shim.
func (r rig) callsRunc(t *testing.T, id string, streams runtime.ExecIO) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &held{begun: make(chan struct{}), release: make(chan struct{})}
	streams.Stdout = out
	done := make(chan error, 1)
	go func() {
		_, err := r.Exec(ctx, id, []string{"sh", "-c", "echo begun; sleep 1000"}, streams)
		done <- err
	}()
	<-out.begun
	close(out.release)
	made, err := filepath.Glob(r.Dirs.Fifos() + "/*/brief-*")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	<-done
	return len(made) > 0
}
