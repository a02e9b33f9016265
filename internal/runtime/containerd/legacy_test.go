package containerd_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/containers"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/containerd/daemontest"
)

// former converts what podrun stores of the rig's pod to what the former version stored.
func (r *rig) former(t *testing.T, labels map[string]map[string]string) {
	t.Helper()
	uid := r.start.Pod.UID
	c, err := r.Runtime.Store().Get(uid)
	if err != nil {
		t.Fatal(err)
	}
	write := func(path string, content any) {
		t.Helper()
		data, err := json.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(r.Dirs.Legacy().Manifest(uid), map[string]any{"owner": c.Owner, "pod": c.Pod})
	write(r.Dirs.Legacy().Instances(uid), c.Newest())
	if err := os.WriteFile(filepath.Join(r.Dirs.Pod(uid), "evicted"), []byte("too much"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(r.Dirs.Legacy().StartedOf(uid), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, raw := r.daemon.Client(t)
	for _, i := range c.Instances {
		all := map[string]string{
			"podrun.io/boot": i.Boot, "podrun.io/sandbox": i.SandboxID, "podrun.io/image": i.Image, "podrun.io/grace": "7s",
			"podrun.io/stop-signal": "10", "podrun.io/pre-stop": "yes", "podrun.io/backoff": "2", "podrun.io/owner": "serve",
		}
		var fields []string
		for key, value := range labels[i.ID] {
			all[key] = value
		}
		for key := range all {
			fields = append(fields, "labels."+key)
		}
		if _, err := raw.ContainerService().Update(ctx, containers.Container{ID: i.ID, Labels: all}, fields...); err != nil {
			t.Fatal(err)
		}
		if i.State == pod.Created {
			continue
		}
		mark := i.Boot + "\n\n" + `{"PostStartDue":true}` + "\n\n" + `{"Failed":{"Why":"liveness"}}` + "\n\n" + `{"Fai`
		if err := os.WriteFile(r.Dirs.Legacy().Started(uid, i.ID), []byte(mark), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range c.Sandboxes {
		entry := map[string]any{
			"namespace": c.Pod.Namespace, "name": c.Pod.Name, "uid": uid, "attempt": s.Attempt, "owner": c.Owner,
			"createdAt": s.CreatedAt, "shm": s.Details.Shm, "systemd": s.Details.Systemd, "boot": s.Boot, "ips": s.IPs,
		}
		text, err := json.Marshal(entry)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(string(text), filepath.Join(r.Dirs.SandboxFiles().Dir(), s.ID+".intent")); err != nil {
			t.Fatal(err)
		}
		write(filepath.Join(r.Dirs.SandboxFiles().Dir(), s.ID, "sandbox.json"), entry)
	}
	if err := os.Remove(r.Dirs.Revision(uid).Checkpoint()); err != nil {
		t.Fatal(err)
	}
}

// TestLegacy checks that pods that the former version started are adopted as they are.
func TestLegacy(t *testing.T) {
	d := daemontest.Embedded(t)
	r := newRig(t, d, "sleep 1000")
	ended, running := r.run(t), r.run(t)
	if err := r.SignalContainer(t.Context(), ended.ID, "KILL"); err != nil {
		t.Fatal(err)
	}
	r.ended(t, 0)
	if err := r.ReapContainer(t.Context(), ended.ID, ""); err != nil {
		t.Fatal(err)
	}
	never := r.run(t) // all but its process
	ctx, raw := d.Client(t)
	endTask(t, ctx, raw, never.ID)
	neverRan(t, r.Runtime, never)
	older := rigOn(t, d, r.Runtime, "sleep 1000")
	older.former(t, nil)
	at := time.Now().Add(-time.Hour)
	if err := os.Chtimes(older.Dirs.Legacy().Manifest(older.start.Pod.UID), at, at); err != nil {
		t.Fatal(err)
	}
	finished := time.Now().UTC().Round(0)
	r.former(t, map[string]map[string]string{ended.ID: {
		"podrun.io/exit-code": "137", "podrun.io/finished-at": finished.Format(time.RFC3339Nano), "podrun.io/reason": "Error",
		"podrun.io/message": "a", "podrun.io/message-2": "b",
	}})

	next := dialOnly(t, d)
	defer next.Close()
	all, err := next.Driver.Legacy(t.Context())
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	if all[0].UID() != older.start.Pod.UID || all[0].Sequence != 1 || all[1].Sequence != 2 || all[1].Owner != "serve" || all[1].Evicted != "too much" {
		t.Errorf("%+v", all)
	}
	states := map[string]pod.State{ended.ID: pod.Exited, running.ID: pod.Running, never.ID: pod.Created}
	for _, i := range all[1].Instances {
		if i.State != states[i.ID] || i.Backoff != 2 || i.Grace != 7*time.Second || i.StopSignal != "SIGUSR1" || !i.PreStop ||
			i.SandboxID != r.start.Sandbox.ID || i.Image != imageRef || i.ImageID != running.ImageID || i.StartedAt.IsZero() {
			t.Errorf("%+v", i)
		}
		if ran := i.State != pod.Created; ran != (i.Notes.Failed != nil) || i.Notes.PostStartDue {
			t.Errorf("%+v", i.Notes)
		}
		if i.ID == ended.ID && (i.ExitCode != 137 || i.Reason != "Error" || i.Message != "ab" || !i.FinishedAt.Equal(finished)) {
			t.Errorf("%+v", i)
		}
		delete(states, i.ID)
	}
	if len(states) > 0 {
		t.Errorf("not there: %v", states)
	}
	takeOver(t, next, all)
	if all, err := next.Driver.Legacy(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("again: %+v, %v", all, err)
	}
	left, err := filepath.Glob(r.Dirs.Pods() + "/*/*")
	more, err2 := filepath.Glob(r.Dirs.SandboxFiles().Dir() + "/*.intent")
	if errors.Join(err, err2) != nil || len(more) > 0 {
		t.Errorf("left: %v, %v", more, errors.Join(err, err2))
	}
	for _, path := range left {
		if name := filepath.Base(path); name != "checkpoint.json" && !strings.HasPrefix(name, "log.") {
			t.Errorf("left: %s", path)
		}
	}
	o, err := next.Inspect(t.Context(), r.key)
	if err != nil || len(o.Data) != 2 || o.Data[0] != r.start.Pod.UID || len(o.Sandboxes) != 2 || !o.Sandboxes[0].Ready {
		t.Errorf("%+v, %v", o, err)
	}
	if c := find(t, next, r.key, "main", running.Attempt); c.State != pod.Running || c.PID != running.PID || c.ID != running.ID {
		t.Errorf("%+v", c)
	}
	if err := next.SignalContainer(t.Context(), running.ID, "KILL"); err != nil {
		t.Fatal(err)
	}
	if c := r.ended(t, running.Attempt); c.ExitCode != 137 || c.StopSignal != "SIGUSR1" {
		t.Errorf("%+v", c)
	}
}

// takeOver saves checkpoints of the former version's pods. It is interrupted once, before the first
// ForgetLegacy.
func takeOver(t *testing.T, r *Runtime, all []checkpoint.Checkpoint) {
	t.Helper()
	for _, c := range all {
		if err := r.Runtime.Store().Restore(&c); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range all[1:] {
		if err := r.Driver.ForgetLegacy(c.UID()); err != nil {
			t.Fatal(err)
		}
	}
}
