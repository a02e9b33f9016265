package cmd

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/agent/connection"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/images"
	"podrun.io/podrun/internal/containerlog"
	"podrun.io/podrun/internal/embedded"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/test"
	"podrun.io/podrun/internal/test/testimage"
)

// real is a container that runs on podrun's own containerd.
type real struct {
	t    *testing.T
	app  *app
	conn *connection.Connection
	pod  *v1.Pod
	inst pod.Instance
}

// startReal runs a shell command line as container app of pod web-node1, and writes the status
// file.
func startReal(t *testing.T, line string) real {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for _, program := range []string{"runc", "busybox"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program + " is not installed")
		}
	}
	// The path of a socket must be short.
	dir, err := os.MkdirTemp("", "podrun")
	must(t, err)
	a := &app{Streams: cli.Streams{In: strings.NewReader(""), Out: &test.Buffer{}, ErrOut: &test.Buffer{}}, log: slog.New(slog.DiscardHandler)}
	a.RootDir, a.RunDir, a.LogDir, a.ContainerdAddress = dir+"/root", dir+"/run", dir+"/log", connection.Embedded
	ctx := context.Background()
	conn, err := connection.Open(ctx, a.connection())
	must(t, err)
	r := real{t: t, app: a, conn: conn}
	r.inst = pod.Instance{Key: pod.Key{Namespace: "default", Name: "web-node1"}, UID: pod.UID("uid-" + rand.Text()), Container: "app"} // cgroups are the whole machine's
	r.pod = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-node1", UID: r.inst.UID},
		Spec: v1.PodSpec{NodeName: "node1", HostNetwork: true, Containers: []v1.Container{
			{Name: "app", Image: "busybox:1", Command: []string{"sh", "-c", line}}}}}
	t.Cleanup(func() { r.remove(dir) })

	archive, err := testimage.Busybox(dir, "busybox:1")
	must(t, err)
	_, err = images.Load(ctx, a.Streams, conn.Driver, archive)
	must(t, err)
	must(t, conn.Runtime.SavePod(r.pod, "serve"))
	must(t, conn.Runtime.CreateSandbox(ctx, r.pod, 0))
	image, err := conn.Runtime.Resolve(ctx, "busybox:1")
	must(t, err)
	must(t, conn.Runtime.StartContainer(ctx, runtime.Start{Pod: r.pod, Container: &r.pod.Spec.Containers[0],
		Sandbox: r.observed().Sandboxes[0], Image: image}))
	r.inst.ID = r.container().ID
	r.pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "app", ContainerID: "containerd://" + r.container().ID,
		State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}
	text, err := json.Marshal(r.pod)
	must(t, err)
	must(t, os.MkdirAll(a.Dirs().StatusFiles().Dir(), 0o755))
	must(t, sys.WriteFile(a.Dirs().StatusFiles().Pod(r.inst.Key), text, 0o600))
	*a.Out.(*test.Buffer) = test.Buffer{}
	return r
}

func (r real) observed() pod.Observed {
	r.t.Helper()
	o, err := r.conn.Runtime.Inspect(context.Background(), r.inst.Key)
	must(r.t, err)
	return o
}

func (r real) container() pod.Container {
	r.t.Helper()
	c, ok := r.observed().Newest(r.inst.UID, "app")
	if !ok {
		r.t.Fatal("there is no container")
	}
	return c
}

func (r real) end() {
	r.t.Helper()
	must(r.t, r.conn.Runtime.SignalContainer(context.Background(), r.container().ID, "KILL"))
	eventually(r.t, "the end", func() bool { return r.container().State == pod.Exited })
}

func (r real) remove(dir string) {
	ctx, rt := context.Background(), r.conn.Runtime
	for _, c := range r.observed().Containers {
		if c.State == pod.Running {
			r.end()
		}
		must(r.t, rt.ReapContainer(ctx, c.ID, ""))
		must(r.t, rt.RemoveContainer(ctx, c.ID))
	}
	for _, s := range r.observed().Sandboxes {
		must(r.t, rt.RemoveSandbox(ctx, s.ID, nil))
	}
	must(r.t, rt.RemoveData(ctx, r.inst.Key, r.inst.UID))
	must(r.t, r.conn.Close())
	// podrun's own containerd exits when nothing needs it; then nothing is mounted any more.
	eventually(r.t, "its end", func() bool { return !embedded.Running(r.app.Dirs()) })
	must(r.t, os.RemoveAll(dir))
}

// run runs a command line against the real container and returns its error.
func (r real) run(args ...string) error {
	g, a := r.app.Global, *r.app
	root := a.root() // which sets the copy's flags to their defaults
	root.SetArgs(append([]string{"--root-dir", g.RootDir, "--run-dir", g.RunDir, "--log-dir", g.LogDir, "--log-links-dir", g.LogLinksDir,
		"--containerd-address", g.ContainerdAddress}, args...))
	return root.ExecuteContext(context.Background())
}

func TestRealExec(t *testing.T) {
	r := startReal(t, "exec sleep 1000")
	for _, c := range []struct {
		args string
		code int
		out  string
	}{
		{"exec web -- echo hello", 0, "hello\n"},
		{"exec web -c app -- sh -c exit\t42", 42, ""},
		{"exec web -- sh -c kill\t-9\t$$", 137, ""},
		{"images prune", 0, ""}, // it is in use
	} {
		out := &test.Buffer{}
		r.app.Out = out
		args := strings.Fields(strings.ReplaceAll(c.args, "\t", "\x00"))
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "\x00", " ")
		}
		if code := r.app.exit(r.run(args...)); code != c.code || out.String() != c.out {
			t.Errorf("%s: exit code %d, %q", c.args, code, out.String())
		}
	}
}

// TestRealLogs: logs prints all that a real container writes, to the last byte, although no process
// reads it for a while.
func TestRealLogs(t *testing.T) {
	r := startReal(t, "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done; echo oops >&2; printf 'no end'; exec sleep 1000")
	var want strings.Builder
	for i := range 20000 {
		want.WriteString("line ")
		want.WriteString(strconv.Itoa(i))
		want.WriteByte('\n')
	}
	tailer := containerlog.New(containerlog.Options{Dirs: r.app.Dirs(), Log: r.app.log})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- tailer.Run(ctx) }()
	tailer.Follow(r.inst, 0)
	out, errOut := &test.Buffer{}, &test.Buffer{}
	r.app.Out, r.app.ErrOut = out, errOut
	followed := make(chan error)
	go func() { followed <- r.run("logs", "-f", "web") }()
	eventually(t, "all lines", func() bool { return out.String() == want.String() && errOut.String() == "oops\n" })
	r.end()
	must(t, tailer.Finish(ctx, r.inst))
	must(t, <-followed)
	cancel()
	must(t, <-done)
	if out.String() != want.String()+"no end" {
		t.Errorf("%d bytes, want %d", len(out.String()), want.Len()+6)
	}
	if _, err := os.Stat(filepath.Join(r.app.Dirs().Revision(r.inst.UID).RawLog(r.inst.Container, r.inst.ID), "stdout.raw")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the raw file is left: %v", err)
	}
}

// TestRealLastWords: a container that writes its last lines and exits immediately loses none of
// them.
func TestRealLastWords(t *testing.T) {
	r := startReal(t, "sleep 0.2; seq 1 3000; seq 1 3000 >&2; exit 3")
	eventually(t, "the end", func() bool { return r.container().State == pod.Exited })
	must(t, containerlog.New(containerlog.Options{Dirs: r.app.Dirs(), Log: r.app.log}).Finish(context.Background(), r.inst))
	out, errOut := &test.Buffer{}, &test.Buffer{}
	r.app.Out, r.app.ErrOut = out, errOut
	start := time.Now()
	must(t, r.run("logs", "-f", "web"))
	if strings.Count(out.String(), "\n") != 3000 || strings.Count(errOut.String(), "\n") != 3000 {
		t.Errorf("%d and %d lines after %s", strings.Count(out.String(), "\n"), strings.Count(errOut.String(), "\n"), time.Since(start))
	}
}
