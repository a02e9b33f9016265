package runtimetest

import (
	"context"
	"errors"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

func testLife(t *testing.T, s subject) {
	p := s.newPod("web-node", "uid-life", "main")
	start := s.ready(t, p)
	start.Backoff = 3
	start.VolumeImages = map[string]string{"files": "example.com/files@sha256:1"}
	before := time.Now()
	c := s.start(t, start)
	boot := c.Boot
	want := pod.Container{
		ID: c.ID, Name: "main", UID: p.UID, SandboxID: start.Sandbox.ID, Backoff: 3, Boot: boot, State: pod.Running,
		PID: c.PID, StartedAt: c.StartedAt, Termination: pod.Termination{Grace: 7 * time.Second},
		Image: s.Image, ImageID: start.Image.ID, Process: pod.Process{User: c.User, VolumeImages: "files=example.com/files@sha256:1"},
	}
	if c != want {
		t.Errorf("running:\n got %+v\nwant %+v", c, want)
	}
	if c.ID == "" || c.PID == 0 || boot == "" || c.User == "" || c.ImageID == "" {
		t.Errorf("something is missing in %+v", c)
	}
	if c.StartedAt.Before(before.Add(-time.Second)) || c.StartedAt.After(time.Now().Add(time.Second)) {
		t.Errorf("started at %s, asked at %s", c.StartedAt, before)
	}
	if err := s.ReapContainer(t.Context(), c.ID, ""); err == nil {
		t.Error("a running instance was reaped")
	}

	s.Exit(t, c.ID, 7)
	c = s.ended(t, start)
	if c.ExitCode != 7 || c.Reason != "Error" || c.Reaped || c.PID != 0 || c.FinishedAt.Before(c.StartedAt) {
		t.Errorf("exited: %+v", c)
	}

	for range 2 {
		must(t, s.ReapContainer(t.Context(), c.ID, ""))
		reaped := s.instance(t, start)
		if !reaped.FinishedAt.Equal(c.FinishedAt) {
			t.Errorf("finished at %s, reaped at %s", c.FinishedAt, reaped.FinishedAt)
		}
		want := c
		want.Reaped, want.FinishedAt = true, reaped.FinishedAt
		if reaped != want {
			t.Errorf("reaped:\n got %+v\nwant %+v", reaped, want)
		}
	}
	for range 2 {
		must(t, s.RemoveContainer(t.Context(), c.ID))
	}
	if o := s.inspect(t, p); len(o.Containers) != 0 {
		t.Errorf("removed: %+v", o.Containers)
	}
	s.remove(t, p)
}

func testCompleted(t *testing.T, s subject) {
	p := s.newPod("job-node", "uid-job", "main")
	start, nothing := s.ready(t, p), func(context.Context) error { return nil }
	c := s.start(t, start)
	s.Exit(t, c.ID, 0)
	if c = s.ended(t, start); c.ExitCode != 0 || c.Reason != "Completed" {
		t.Errorf("%+v", c)
	}
	must(t, s.ReapContainer(t.Context(), c.ID, ""))
	must(t, s.CreateSandbox(t.Context(), p, 1))
	for i, ended := range []func(context.Context) error{nothing, nil, nothing} { // one of two, a lost one, the last one
		must(t, s.RemoveSandbox(t.Context(), s.inspect(t, p).Sandboxes[0].ID, ended))
		// A cgroup would weigh as if the pod ran; without one, what its volumes in memory hold would not count.
		if has := s.HasCgroup(p.UID); has != (i < 2) {
			t.Errorf("removal %d: the pod has a cgroup: %t", i, has)
		}
		if i == 1 {
			must(t, s.CreateSandbox(t.Context(), p, 2))
		}
	}
	s.remove(t, p)
}

func testStartAgain(t *testing.T, s subject) {
	p := s.newPod("web-node", "uid-again", "main")
	start := s.ready(t, p)
	first := s.start(t, start)
	if second := s.start(t, start); second != first {
		t.Errorf("the second start changed\n     %+v\ninto %+v", first, second)
	}
	s.Exit(t, first.ID, 1)
	ended := s.ended(t, start)
	// It may return an error, but it starts and changes nothing.
	err := s.StartContainer(t.Context(), start)
	if started := (*runtime.StartError)(nil); errors.As(err, &started) {
		t.Errorf("error %v", err)
	}
	if again := s.instance(t, start); again != ended {
		t.Errorf("a start of what has run changed\n     %+v\ninto %+v", ended, again)
	}
	s.remove(t, p)
}

func testNextAttempt(t *testing.T, s subject) {
	p := s.newPod("web-node", "uid-next", "main")
	start := s.ready(t, p)
	first := s.start(t, start)
	if s.Runs {
		if code := s.exec(t, first.ID, "touch /mark"); code != 0 {
			t.Fatalf("touch: %d", code)
		}
	}
	s.Exit(t, first.ID, 1)
	s.ended(t, start)

	// The exited instance still exists, reaped or not.
	next := start
	next.Attempt = 1
	second := s.start(t, next)
	if second.ID == first.ID || second.State != pod.Running || second.Attempt != 1 {
		t.Errorf("%+v after %+v", second, first)
	}
	if o := s.inspect(t, p); len(o.Containers) != 2 || o.Containers[0].Attempt != 1 {
		t.Errorf("newest first: %+v", o.Containers)
	}
	if s.Runs {
		if code := s.exec(t, second.ID, "test ! -e /mark"); code != 0 {
			t.Error("the second attempt sees what the first wrote")
		}
	}
	must(t, s.ReapContainer(t.Context(), first.ID, ""))
	must(t, s.RemoveContainer(t.Context(), first.ID))

	// Removing its predecessor does not change the running instance, and a third one can run beside
	// it.
	next.Attempt = 2
	third := s.start(t, next)
	next.Attempt = 1
	if c := s.instance(t, next); c != second || third.State != pod.Running {
		t.Errorf("%+v became %+v, then %+v", second, c, third)
	}
	s.remove(t, p)
}

func testMissing(t *testing.T, s subject) {
	ctx := t.Context()
	key := pod.Key{Namespace: "default", Name: "none"}
	const id = "0123456789abcdef0123456789abcdef"
	for what, err := range map[string]error{
		"signal":           s.SignalContainer(ctx, id, "TERM"),
		"reap":             s.ReapContainer(ctx, id, ""),
		"remove":           s.RemoveContainer(ctx, id),
		"remove a sandbox": s.RemoveSandbox(ctx, id, nil),
		"remove data":      s.RemoveData(ctx, key, "uid-none"),
		"remove emptyDirs": s.RemoveEmptyDirs(ctx, "uid-none"),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	o, err := s.Inspect(ctx, key)
	must(t, err)
	if !o.Empty() || o.Key != key {
		t.Errorf("%+v", o)
	}
	all, err := s.List(ctx)
	must(t, err)
	if len(all) != 0 {
		t.Errorf("%+v", all)
	}
	if _, err := s.LoadPod("uid-none"); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("load: %v", err)
	}
	if _, err := s.Resolve(ctx, "nowhere.example/none:1"); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("resolve: %v", err)
	}
	if _, err := s.Exec(ctx, id, []string{"true"}, runtime.ExecIO{}); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("exec: %v", err)
	}
}

func testStartError(t *testing.T, s subject) {
	p := s.newPod("bad-node", "uid-bad", "main")
	p.Spec.Containers[0].Command = []string{NoSuchCommand}
	if s.CannotStart != nil {
		s.CannotStart(&p.Spec.Containers[0])
	}
	start := s.ready(t, p)
	for i := range 2 { // the second start finds the first instance; it may fail, but it changes nothing
		err := s.StartContainer(t.Context(), start)
		if started := (*runtime.StartError)(nil); i == 0 && !errors.As(err, &started) {
			t.Fatalf("error %v", err)
		}
		c := s.instance(t, start)
		if c.State != pod.Exited || c.ExitCode != 128 || c.Reason != "StartError" || c.Message == "" ||
			c.StartedAt.IsZero() || c.FinishedAt.Before(c.StartedAt) {
			t.Fatalf("%+v", c)
		}
		must(t, s.ReapContainer(t.Context(), c.ID, ""))
		if reaped := s.instance(t, start); !reaped.Reaped || reaped.Reason != "StartError" || reaped.ExitCode != 128 {
			t.Errorf("reaped: %+v", reaped)
		}
	}
	next := start
	next.Attempt = 1
	err := s.StartContainer(t.Context(), next)
	if started := (*runtime.StartError)(nil); !errors.As(err, &started) {
		t.Errorf("error %v", err)
	}
	s.remove(t, p)
}

func testSignals(t *testing.T, s subject) {
	for _, c := range []struct {
		signal string
		code   int
	}{{"TERM", 143}, {"SIGTERM", 143}, {"", 143}, {"KILL", 137}, {"SIGKILL", 137}} {
		p := s.newPod("web-node", "uid-signal-"+c.signal, "main")
		start := s.ready(t, p)
		running := s.start(t, start)
		s.settle(t, running.ID)
		must(t, s.SignalContainer(t.Context(), running.ID, c.signal))
		if ended := s.ended(t, start); ended.ExitCode != c.code || ended.Reason != "Error" {
			t.Errorf("%q: %+v", c.signal, ended)
		}
		must(t, s.SignalContainer(t.Context(), running.ID, c.signal))
		s.remove(t, p)
	}
	if err := s.SignalContainer(t.Context(), "0123456789abcdef0123456789abcdef", "NONSENSE"); err != nil {
		t.Errorf("the missing instance comes before the unknown signal: %v", err)
	}
}

func testRemoveRunning(t *testing.T, s subject) {
	p := s.newPod("web-node", "uid-running", "main")
	start := s.ready(t, p)
	c := s.start(t, start)
	if err := s.RemoveContainer(t.Context(), c.ID); err == nil {
		t.Error("a running instance was removed")
	}
	if now := s.instance(t, start); now != c {
		t.Errorf("%+v became %+v", c, now)
	}
	s.Exit(t, c.ID, 1)
	s.ended(t, start)
	must(t, s.RemoveContainer(t.Context(), c.ID)) // exited, not reaped
	s.remove(t, p)
}

func testInterruptedStart(t *testing.T, s subject) {
	p := s.newPod("web-node", "uid-cut", "main")
	start := s.ready(t, p)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := s.StartContainer(ctx, start)
	if started := (*runtime.StartError)(nil); err == nil || errors.As(err, &started) {
		t.Fatalf("error %v", err)
	}
	for _, c := range s.inspect(t, p).Containers {
		if c.State != pod.Created {
			t.Errorf("cut off before it ran: %+v", c)
		}
	}
	// Whenever the start is interrupted, the next one results in exactly one instance, which runs.
	for i, delay := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 40 * time.Millisecond} {
		start.Attempt = i
		ctx, cancel := context.WithTimeout(t.Context(), delay)
		_ = s.StartContainer(ctx, start)
		cancel()
		if c := s.start(t, start); c.State != pod.Running {
			t.Errorf("cut off after %s, started again: %+v", delay, c)
		}
	}
	s.remove(t, p)
}

// testLifecycle checks that an instance reports whether it has a preStop hook, and that the stop
// signal of its container has precedence over the image's.
func testLifecycle(t *testing.T, s subject) {
	p := s.newPod("hook-node", "uid-hook", "main")
	c := &p.Spec.Containers[0]
	c.Command = []string{"sh", "-c", "trap 'exit 9' USR1; touch /up; while :; do sleep 0.02; done"}
	c.Lifecycle = &v1.Lifecycle{StopSignal: new(v1.SIGUSR1), PreStop: &v1.LifecycleHandler{Sleep: &v1.SleepAction{}}}
	start := s.ready(t, p)
	running := s.start(t, start)
	if !running.PreStop || running.StopSignal != "SIGUSR1" {
		t.Errorf("hook or signal is not told: %+v", running)
	}
	if s.Runs {
		eventually(t, "the trap is set", func() bool { return s.exec(t, running.ID, "test -e /up") == 0 })
		must(t, s.SignalContainer(t.Context(), running.ID, ""))
		if ended := s.ended(t, start); ended.ExitCode != 9 || !ended.PreStop {
			t.Errorf("after its stop signal: %+v", ended)
		}
	}
	s.remove(t, p)
}
