package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// patience is how long an expected state may take on a slow and busy machine.
const patience = 60 * time.Second

// node is one podrun with directories of its own.
type node struct {
	t         *testing.T
	dir       string
	manifests string
	flags     []string
	serving   *exec.Cmd
	ended     chan error
	log       *os.File // what serve says
	uids      map[string]bool
	env       []string // more of commands' environment
	podrun    string   // the binary; empty: that of all
	enter     []string // what commands are run by, as nsenter; nil: nothing
}

// newNode makes a node with the test image loaded. When the test ends its pods are stopped and all traces
// looked for.
func newNode(t *testing.T) *node {
	t.Helper()
	n := bareNode(t)
	n.ok("images", "load", setup.image)
	return n
}

// bareNode makes a node without starting anything.
func bareNode(t *testing.T) *node {
	t.Helper()
	if !wanted() {
		t.Skip("end-to-end tests run as root by make e2e (PODRUN_E2E=1)")
	}
	t.Parallel()
	// Short, because socket paths are: t.TempDir is not.
	dir, err := os.MkdirTemp("", "pe")
	must(t, err)
	n := &node{t: t, dir: dir, manifests: filepath.Join(dir, "manifests"), uids: map[string]bool{}}
	must(t, os.Mkdir(n.manifests, 0o755))
	n.log, err = os.Create(filepath.Join(dir, "serve.log"))
	must(t, err)
	n.flags = []string{
		"--root-dir=" + n.path("root"), "--run-dir=" + n.path("run"), "--log-dir=" + n.path("log"),
		"--containerd-address=" + setup.address, "--containerd-namespace=" + filepath.Base(dir),
		"--log-links-dir=" + n.path("containers"),
	}
	setup.mu.Lock()
	defer setup.mu.Unlock()
	setup.nodes[n] = true
	t.Cleanup(n.clean)
	return n
}

func (n *node) path(elem ...string) string {
	return filepath.Join(append([]string{n.dir}, elem...)...)
}

// result is what a command did.
type result struct {
	code           int
	stdout, stderr string
}

func (r result) String() string {
	return fmt.Sprintf("exit %d\nstdout:\n%s\nstderr:\n%s", r.code, r.stdout, r.stderr)
}

// command makes a podrun command with the node's directories. Flags of podrun come before the arguments, so
// that a -- among them is left alone.
func (n *node) command(ctx context.Context, args ...string) *exec.Cmd {
	all := append([]string{args[0]}, n.flags...)
	line := append(append(append([]string{}, n.enter...), cmp.Or(n.podrun, setup.podrun)), append(all, args[1:]...)...)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	// Whoever runs the tests may have directories of their own in the environment.
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, n.env...)
	if events := os.Getenv("PODRUN_E2E_EVENTS"); events != "" {
		cmd.Env = append(cmd.Env, "PODRUN_EVENTS="+events)
	}
	if driver := os.Getenv("PODRUN_E2E_CGROUP_DRIVER"); driver != "" {
		cmd.Env = append(cmd.Env, "PODRUN_CGROUP_DRIVER="+driver)
	}
	return cmd
}

// run runs a command to its end.
func (n *node) run(args ...string) result {
	n.t.Helper()
	return n.runIn("", args...)
}

// runIn runs a command with text as its standard input.
func (n *node) runIn(stdin string, args ...string) result {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute)
	defer cancel()
	return outcome(n.t, n.command(ctx, args...), stdin)
}

func outcome(t *testing.T, cmd *exec.Cmd, stdin string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("podrun %s: %v", strings.Join(cmd.Args[1:], " "), err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

// ok runs a command that must succeed and returns its standard output.
func (n *node) ok(args ...string) string {
	n.t.Helper()
	r := n.run(args...)
	if r.code != 0 {
		n.t.Fatalf("podrun %s: %v", strings.Join(args, " "), r)
	}
	return r.stdout
}

// once runs `podrun once` on a manifest.
func (n *node) once(manifest string, args ...string) result {
	n.t.Helper()
	return n.runIn(manifest, append([]string{"once", "--manifests=-", "--node-name=n"}, args...)...)
}

// serve starts `podrun serve` on the manifests' directory.
func (n *node) serve(args ...string) {
	n.t.Helper()
	n.serveWith(nil, args...)
}

// serveWith is serve with more environment variables.
func (n *node) serveWith(environment []string, args ...string) {
	n.t.Helper()
	n.serving = n.command(context.Background(), append([]string{"serve", "--manifests=" + n.manifests, "--node-name=n"}, args...)...)
	n.serving.Stdout, n.serving.Stderr = n.log, n.log
	n.serving.Env = append(n.serving.Environ(), environment...)
	must(n.t, n.serving.Start())
	n.ended = make(chan error, 1)
	go func(cmd *exec.Cmd, ended chan<- error) { ended <- cmd.Wait() }(n.serving, n.ended)
}

// end sends serve a signal and waits for its end.
func (n *node) end(signal syscall.Signal) {
	n.t.Helper()
	must(n.t, n.serving.Process.Signal(signal))
	select {
	case <-n.ended:
	case <-time.After(patience):
		n.t.Errorf("serve did not end after %v", signal)
		n.serving.Process.Kill()
		<-n.ended
	}
	n.serving = nil
}

// write puts a manifest into the directory, whole.
func (n *node) write(name, manifest string) {
	n.t.Helper()
	hidden := filepath.Join(n.manifests, "."+name)
	must(n.t, os.WriteFile(hidden, []byte(manifest), 0o644))
	must(n.t, os.Rename(hidden, filepath.Join(n.manifests, name)))
}

func (n *node) remove(name string) {
	n.t.Helper()
	must(n.t, os.Remove(filepath.Join(n.manifests, name)))
}

// pods are those that `get` shows, by name.
func (n *node) pods() map[string]v1.Pod {
	n.t.Helper()
	var list v1.PodList
	must(n.t, json.Unmarshal([]byte(n.ok("get", "pods", "-A", "-o", "json")), &list))
	out := map[string]v1.Pod{}
	for _, p := range list.Items {
		out[p.Name] = p
		n.uids[string(p.UID)] = true
	}
	return out
}

// pod returns the named pod; nil when it is not there.
func (n *node) pod(name string) *v1.Pod {
	n.t.Helper()
	if p, ok := n.pods()[name]; ok {
		return &p
	}
	return nil
}

// await polls until check has no complaint.
func (n *node) await(what string, check func() error) {
	n.t.Helper()
	await(n.t, patience, what, check)
}

func await(t *testing.T, limit time.Duration, what string, check func() error) {
	t.Helper()
	var err error
	pause := 20 * time.Millisecond
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(pause) {
		began := time.Now()
		if err = check(); err == nil {
			return
		}
		// Most checks run podrun: all tests together would keep a slow machine busy with looking.
		pause = max(min(2*pause, 250*time.Millisecond), min(2*time.Since(began), time.Second))
	}
	t.Fatalf("waited in vain for %s: %v", what, err)
}

// awaitPod waits until the pod is there and check has no complaint about it.
func (n *node) awaitPod(name, what string, check func(*v1.Pod) error) *v1.Pod {
	n.t.Helper()
	var p *v1.Pod
	n.await(name+" "+what, func() error {
		if p = n.pod(name); p == nil {
			return errors.New("no such pod")
		}
		return check(p)
	})
	return p
}

// ready waits until the pod is ready.
func (n *node) ready(name string) *v1.Pod {
	n.t.Helper()
	return n.awaitPod(name, "to be ready", isReady)
}

func isReady(p *v1.Pod) error {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("not ready: %s", asJSON(p.Status))
}

// gone waits until the pod is there no more.
func (n *node) gone(name string) {
	n.t.Helper()
	n.await(name+" to be gone", func() error {
		if p := n.pod(name); p != nil {
			return fmt.Errorf("still there: %s", asJSON(p.Status))
		}
		return nil
	})
}

// restarted waits until the pod's container has run again and is ready.
func (n *node) restarted(name string, count int32) *v1.Pod {
	n.t.Helper()
	return n.awaitPod(name, fmt.Sprintf("to be at restart %d", count), func(p *v1.Pod) error {
		if s := p.Status.ContainerStatuses; len(s) == 0 || s[0].RestartCount < count || s[0].State.Running == nil {
			return errors.New(asJSON(s))
		}
		return nil
	})
}

func asJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
