package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// measured collects what a Prober reports.
type measured struct {
	mu  sync.Mutex
	all []string
}

func (m *measured) add(line string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, line)
}

// lines returns what was reported, sorted.
func (m *measured) lines() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(slices.Values(m.all))
}

func (m *measured) Probed(one Probed) {
	m.add(fmt.Sprintf("%s/%s %s %s %s %s", one.Pod, one.UID, one.Container, one.Type, one.Result, one.Duration))
}

func (m *measured) ForgotProbes(key pod.Key, uid pod.UID) {
	m.add(fmt.Sprintf("forgot %s/%s", key, uid))
}

// TestObserver: each run of a probe is reported with its result and duration, and the end of each revision, but not
// that of an instance whose revision is still probed.
func TestObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m measured
		p := New(Options{Log: quiet, Events: &noted{}, Observer: &m, Exec: execFunc(
			func(_ context.Context, cmd []string, _ io.Writer) (int, error) {
				time.Sleep(300 * time.Millisecond)
				if cmd[0] == "missing" {
					return 0, errors.New("no such command")
				}
				return len(cmd) - 1, nil
			})})
		ctx, cancel := context.WithCancel(t.Context())
		out, done := make(chan pod.Key, 100), make(chan error)
		go func() { done <- p.Run(ctx, out) }()
		spec := func(cmd ...string) *v1.Probe {
			s := &v1.Probe{TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 9}
			s.Exec = &v1.ExecAction{Command: cmd}
			return s
		}
		key := pod.Key{Namespace: "default", Name: "web-n"}
		target := func(id, uid string) Target {
			of := &v1.Pod{}
			of.UID = pod.UID(uid)
			return Target{ID: id, Pod: of, Extent: Everything, StartedAt: time.Now(), Container: &v1.Container{
				Name: "c", StartupProbe: spec("good"), LivenessProbe: spec("bad", "1"), ReadinessProbe: spec("missing"),
			}}
		}
		p.Set(key, []Target{target("i1", "u1")})
		time.Sleep(5 * time.Second)
		want := []string{
			"default/web-n/u1 c Liveness failed 300ms", "default/web-n/u1 c Readiness unknown 900ms",
			"default/web-n/u1 c Startup successful 300ms",
		}
		if got := m.lines(); !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
		forgot := func() string {
			all := slices.DeleteFunc(m.lines(), func(line string) bool { return !strings.HasPrefix(line, "forgot") })
			return strings.Join(all, ", ")
		}
		p.Set(key, []Target{target("i2", "u1")})
		if got := forgot(); got != "" {
			t.Error(got)
		}
		p.Set(key, []Target{target("i3", "u2")})
		if got := forgot(); got != "forgot default/web-n/u1" {
			t.Error(got)
		}
		p.Set(key, nil)
		if got := forgot(); got != "forgot default/web-n/u1, forgot default/web-n/u2" {
			t.Error(got)
		}
		cancel()
		<-done
	})
}
