package containerd_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/typeurl/v2"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/containerd/daemontest"
)

// TestKilledInAnExec kills podrun while it starts a command in a container. The shim waits for a
// reader of the command's output; an old containerd gets no other answer from it meanwhile, not
// even that the container has exited.
func TestKilledInAnExec(t *testing.T) {
	for name, start := range daemontest.Kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := start(t)
			r := newRig(t, d, "sleep 1000")
			c := r.run(t)
			ctx, raw := d.Client(t)
			begin, cancel := context.WithCancel(ctx)
			begun := make(chan struct{})
			go func() {
				defer close(begun)
				startUnread(t, begin, raw, c.ID, filepath.Join(d.Dirs.Fifos(), "killed"))
			}()
			daemontest.Eventually(t, "the command runs", func() bool { return runsUnder(t, parent(t, c.PID), "sleep\x00999\x00") })
			cancel() // podrun is killed
			<-begun
			if err := syscall.Kill(c.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			next := rig{Runtime: dialOnly(t, d), daemon: d, key: r.key, start: r.start}
			defer next.Close()
			if err := next.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			if ended := next.ended(t, 0); ended.State != pod.Exited || ended.ExitCode != 137 {
				t.Errorf("%+v", ended)
			}
		})
	}
}

// startUnread starts a command that writes to pipes in dir, which have no reader.
func startUnread(t *testing.T, ctx context.Context, c *client.Client, id, dir string) {
	loaded, err := c.LoadContainer(ctx, id)
	if err != nil {
		t.Error(err)
		return
	}
	spec, err := loaded.Spec(ctx)
	if err != nil {
		t.Error(err)
		return
	}
	spec.Process.Args = []string{"sleep", "999"}
	process, err := typeurl.MarshalAnyToProto(spec.Process)
	if err != nil {
		t.Error(err)
		return
	}
	request := &tasks.ExecProcessRequest{ContainerID: id, ExecID: "unread", Spec: process, Stdout: filepath.Join(dir, "unread-stdout"), Stderr: filepath.Join(dir, "unread-stderr")}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Error(err)
		return
	}
	for _, path := range []string{request.Stdout, request.Stderr} {
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Error(err)
			return
		}
	}
	if _, err := c.TaskService().Exec(ctx, request); err != nil {
		t.Error(err)
		return
	}
	_, _ = c.TaskService().Start(ctx, &tasks.StartRequest{ContainerID: id, ExecID: "unread"})
}

// runsUnder reports whether a process with that command line is a child of parent.
func runsUnder(t *testing.T, parent int, line string) bool {
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, _ := os.ReadFile(path)
		status, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "status"))
		if string(text) == line && strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", parent)) {
			return true
		}
	}
	return false
}
