package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"text/template"
	"time"

	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
)

// node is a running `podrun serve` that is controlled only by its manifests.
type node struct {
	cmd       *exec.Cmd
	done      chan struct{}
	client    *containerd.Client
	manifests string
	plugins   string // the directory where plugins look for the kubelet
	marks     *marks
	flags     []string
	binary    string
	// deaf makes the pods' processes ignore SIGTERM.
	deaf bool
	// removed is how long Close needed to remove the pods.
	removed time.Duration
}

// newNode loads the image and starts podrun with its own directories in dir.
func newNode(ctx context.Context, binary string, on site, m *marks) (*node, error) {
	dir := on.dir
	n := &node{
		client:    on.client,
		manifests: filepath.Join(dir, "manifests"),
		marks:     m,
		plugins:   filepath.Join(dir, "kubelet"),
		binary:    binary,
		done:      make(chan struct{}),
	}
	n.flags = flagsOf(dirsOf(dir, filepath.Join(dir, "run")), on.address)
	if err := os.MkdirAll(n.manifests, 0o755); err != nil {
		return nil, err
	}
	if err := n.podrun(ctx, "images", "load", on.archive); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "serve.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	args := append([]string{"serve", "--manifests", n.manifests, "--node-name", "bench"}, n.flags...)
	if on.plugins {
		args = append(args, "--plugins", "--plugins-dir="+n.plugins)
	}
	n.cmd = exec.Command(binary, args...)
	n.cmd.Stdout, n.cmd.Stderr = log, log
	if err := n.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting podrun: %w", err)
	}
	go func() {
		_ = n.cmd.Wait() // it is stopped by Close, or its log says why it exited
		close(n.done)
	}()
	return n, nil
}

// podrun runs a podrun command and waits for it.
func (n *node) podrun(ctx context.Context, args ...string) error {
	return podrun(ctx, n.binary, append(args, n.flags...)...)
}

// dirsOf returns podrun's directories in dir, with the run directory run.
func dirsOf(dir, run string) layout.Dirs {
	return layout.Dirs{
		Root: filepath.Join(dir, "podrun"), Run: run,
		Log: filepath.Join(dir, "log"), LogLinks: filepath.Join(dir, "containers"),
	}
}

// flagsOf returns the flags of podrun for its directories and a containerd.
func flagsOf(d layout.Dirs, address string) []string {
	return []string{
		"--containerd-address", address, "--root-dir", d.Root, "--run-dir", d.Run,
		"--log-dir", d.Log, "--log-links-dir", d.LogLinks,
	}
}

// podrun runs a podrun command and waits for it.
func podrun(ctx context.Context, binary string, args ...string) error {
	out, err := exec.CommandContext(ctx, binary, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("podrun %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// Close stops podrun and removes its pods.
func (n *node) Close(ctx context.Context) error {
	err := n.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-n.done:
	case <-time.After(20 * time.Second):
		err = errors.Join(err, errors.New("podrun did not stop"), n.cmd.Process.Kill())
		<-n.done
	}
	begin := time.Now()
	err = errors.Join(err, n.podrun(ctx, "down", "--all", "--grace-period", "1"))
	n.removed = time.Since(begin)
	_ = unix.Unmount(n.plugins, unix.MNT_DETACH) // with --plugins podrun has mounted it on itself
	return err
}

// manifest is a pod with one container that creates a mark and then sleeps.
var manifest = template.Must(template.New("pod").Funcs(template.FuncMap{"command": command}).Parse(`apiVersion: v1
kind: Pod
metadata:
  name: {{.Name}}
spec:
  os: {name: linux}
  containers:
  - name: c
    image: {{.Image}}
{{- if not .Deaf}}
    lifecycle: {stopSignal: SIGKILL}
{{- end}}
    command:
{{- range command .Name}}
    - {{printf "%q" .}}
{{- end}}
{{- if .Edit}}
    env: [{name: EDIT, value: "1"}]
{{- end}}
    volumeMounts:
    - {name: marks, mountPath: {{.Mount}}}
  volumes:
  - name: marks
    hostPath: {path: {{.Marks}}, type: Directory}
---
`))

// many creates a manifest file with n pods and returns how long it took until the last process ran.
func (n *node) many(ctx context.Context, prefix string, count int) (time.Duration, error) {
	return n.drop(ctx, prefix, count, false)
}

// update edits the manifest of the only pod, so that it needs a new container, and returns how long
// it takes until that runs. The old container ends at once when it is asked to terminate.
func (n *node) update(ctx context.Context, prefix string) (time.Duration, error) {
	if _, err := n.many(ctx, prefix, 1); err != nil {
		return 0, err
	}
	if err := settle(ctx); err != nil {
		return 0, err
	}
	return n.drop(ctx, prefix, 1, true)
}

func (n *node) drop(ctx context.Context, prefix string, count int, edit bool) (time.Duration, error) {
	var text bytes.Buffer
	for i := range count {
		err := manifest.Execute(&text, struct {
			Name, Image, Mount, Marks string
			Edit, Deaf                bool
		}{fmt.Sprintf("%s-%d", prefix, i), imageRef, markMount, n.marks.dir, edit, n.deaf})
		if err != nil {
			return 0, err
		}
	}
	// Write a hidden file and rename it, so that podrun reads it only when it is complete.
	hidden := filepath.Join(n.manifests, "."+prefix)
	if err := os.WriteFile(hidden, text.Bytes(), 0o644); err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := os.Rename(hidden, n.file(prefix)); err != nil {
		return 0, err
	}
	last, err := n.marks.wait(ctx, prefix, count)
	return last.Sub(begin), err
}

func (n *node) file(prefix string) string { return filepath.Join(n.manifests, prefix+".yaml") }

// restart kills the process of the only pod and returns how long it takes until its replacement
// runs.
func (n *node) restart(ctx context.Context, prefix string) (time.Duration, error) {
	if _, err := n.many(ctx, prefix, 1); err != nil {
		return 0, err
	}
	// The mark is created before podrun has the event that the container runs. Wait: a real failure
	// would come later, too.
	if err := settle(ctx); err != nil {
		return 0, err
	}
	pids, err := n.pids(ctx)
	if err != nil {
		return 0, err
	}
	if len(pids) != 1 {
		return 0, fmt.Errorf("%d processes run, want 1", len(pids))
	}
	begin := time.Now()
	if err := kill(pids[0]); err != nil {
		return 0, err
	}
	last, err := n.marks.wait(ctx, prefix, 1)
	return last.Sub(begin), err
}

// pids returns the processes of podrun's running containers, as containerd reports them.
func (n *node) pids(ctx context.Context) ([]int, error) {
	list, err := n.client.TaskService().List(namespaces.WithNamespace(ctx, "podrun"), &tasks.ListTasksRequest{})
	if err != nil {
		return nil, fmt.Errorf("listing tasks: %w", err)
	}
	var out []int
	for _, task := range list.Tasks {
		if task.Pid != 0 {
			out = append(out, int(task.Pid))
		}
	}
	return out, nil
}

// remove removes the pods' manifests and returns when containerd has none of their containers left.
func (n *node) remove(ctx context.Context, prefix string) error {
	if err := os.Remove(n.file(prefix)); err != nil {
		return err
	}
	for {
		list, err := n.client.ContainerService().List(namespaces.WithNamespace(ctx, "podrun"))
		if err != nil {
			return fmt.Errorf("listing containers: %w", err)
		}
		if len(list) == 0 {
			return n.marks.clear(prefix)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%d containers are left: %w", len(list), context.Cause(ctx))
		}
	}
}
