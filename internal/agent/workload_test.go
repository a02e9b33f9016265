package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/fake"
)

// statefulSet is a StatefulSet whose pods are ready after ten seconds and take three to end.
func statefulSet(replicas int, more string) string {
	return fmt.Sprintf("apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db}\nspec:\n  replicas: %d\n  %s\n", replicas, more) +
		"  selector: {matchLabels: {app: db}}\n  template:\n    metadata: {labels: {app: db}}\n    spec:\n      containers:\n" +
		"      - {name: c, image: 'db:1', readinessProbe: {exec: {command: [x]}, initialDelaySeconds: 10}}\n"
}

// existing returns the names of the pods that have a status, with * if they are ready and - if they end.
func existing(t *testing.T, o Options) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(o.Dirs.StatusFiles().Dir(), "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, file := range files {
		var p v1.Pod
		if text, err := os.ReadFile(file); err != nil {
			t.Fatal(err)
		} else if err := json.Unmarshal(text, &p); err != nil {
			t.Fatal(err)
		}
		name := p.Name
		started := slices.ContainsFunc(p.Status.ContainerStatuses, func(s v1.ContainerStatus) bool { return s.State.Running != nil })
		switch {
		case p.DeletionTimestamp != nil:
			name += "-"
		case pod.Arrived(&p):
			name += "*"
		case !started:
			name += "?"
		}
		all = append(all, name)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// TestStatefulSetInOrder: the pods of a StatefulSet start one after the other and stop in reverse, also
// if podrun is started again in between; with Parallel both happens at once.
func TestStatefulSetInOrder(t *testing.T) {
	rt := fake.New("boot-1")
	rt.AddImage("db:1", fake.Script{})
	rt.IgnoreTerm("c") // it ends with its grace period, after 30 s
	o := simulated(t, rt)
	file := filepath.Join(o.Sources.Manifests[0], "db.yaml")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	put(statefulSet(3, ""))
	synctest.Test(t, func(t *testing.T) {
		serve := func() (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- Serve(ctx, o, false) }()
			return func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		}
		after := func(d time.Duration, want string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if got := existing(t, o); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		stop := serve()
		after(6*time.Second, "db-0-n db-1-n? db-2-n?")
		after(10*time.Second, "db-0-n* db-1-n db-2-n?")
		after(30*time.Second, "db-0-n* db-1-n* db-2-n*")
		put(statefulSet(1, ""))
		after(25*time.Second, "db-0-n* db-1-n* db-2-n-")
		stop()
		stop = serve()
		after(20*time.Second, "db-0-n* db-1-n-")
		after(40*time.Second, "db-0-n*")
		put(statefulSet(3, "podManagementPolicy: Parallel"))
		after(50*time.Second, "db-0-n* db-1-n* db-2-n*")
		put(statefulSet(1, "podManagementPolicy: Parallel"))
		after(25*time.Second, "db-0-n* db-1-n- db-2-n-")
		if err := os.Remove(file); err != nil {
			t.Error(err)
		}
		after(2*time.Minute, "")
		stop()
	})
}
