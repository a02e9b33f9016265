package containerd_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemontest"
)

// stopped reports whether all threads of a process are stopped.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		t.Fatal(threads, err)
	}
	return !slices.ContainsFunc(threads, func(path string) bool {
		text, err := os.ReadFile(path)
		return err == nil && !strings.Contains(string(text), ") T ")
	})
}

// TestAShimThatHangs checks that a pod whose shim hangs cannot be inspected, or has the state
// Unknown, depending on containerd; that all other pods are listed as before; and that this pod is
// listed again when its shim continues.
func TestAShimThatHangs(t *testing.T) {
	for name, start := range daemontest.Kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // containerd waits 2 s for each answer
			d := start(t)
			r := newRig(t, d, "sleep 1000")
			other := rigOn(t, d, r.Runtime, "sleep 1000", func(p *v1.Pod) { p.Name = "other-node" })
			hangs, lives := r.run(t), other.run(t)
			shim := parent(t, hangs.PID)
			if err := syscall.Kill(shim, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			defer syscall.Kill(shim, syscall.SIGCONT)
			daemontest.Eventually(t, "the shim stands still", func() bool { return stopped(t, shim) })
			all, err := r.List(t.Context())
			if unknown := (*runtime.UnknownError)(nil); errors.As(err, &unknown) {
				if len(unknown.Pods) != 1 || unknown.Pods[0].Key != r.key || len(unknown.Pods[0].Data) != 1 {
					t.Errorf("not told of: %+v", unknown.Pods)
				}
				all = append(all, unknown.Pods...)
			} else if err != nil {
				t.Fatal(err)
			}
			if len(all) != 2 {
				t.Errorf("listed: %+v", all)
			}
			for _, o := range all {
				for _, c := range o.Containers {
					if o.Key == other.key && c.PID != lives.PID || o.Key == r.key && c.State != pod.Unknown {
						t.Errorf("%s: %+v", o.Key, c)
					}
				}
				if o.Key == other.key && len(o.Containers) != 1 {
					t.Errorf("%+v", o)
				}
			}
			if err := syscall.Kill(shim, syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			if c := find(t, r.Runtime, r.key, "main", 0); c.State != pod.Running || c.PID != hangs.PID {
				t.Errorf("when it goes on: %+v", c)
			}
			if all, err := r.List(t.Context()); err != nil || len(all) != 2 {
				t.Errorf("when it goes on: %+v, %v", all, err)
			}
		})
	}
}
