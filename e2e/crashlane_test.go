package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"

	"podrun.io/podrun/internal/test/testcontainerd"
)

// lane is a node on a machine of its own: process, mount and network namespaces and a boot id, so that it can
// be switched off.
type lane struct {
	*node
	power *exec.Cmd
	init  int // the machine's process 1, as the host numbers it
	boots int
	// server is a containerd that is not podrun's own; nil for the embedded.
	server *testcontainerd.Server
}

// newLane makes a lane with the test image loaded.
func newLane(t *testing.T) *lane {
	t.Helper()
	dir, err := os.MkdirTemp("", "pc")
	must(t, err)
	l := &lane{node: &node{t: t, dir: dir, manifests: filepath.Join(dir, "manifests"), uids: map[string]bool{}}}
	t.Cleanup(func() {
		l.powerOff()
		testcontainerd.RemoveRunc(l.namespace())
		must(t, os.RemoveAll(dir))
	})
	for _, sub := range []string{"manifests", "trace", "s"} {
		must(t, os.Mkdir(l.path(sub), 0o777))
	}
	l.log, err = os.OpenFile(l.path("serve.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(t, err)
	l.powerOn()
	address := "embedded"
	if setup.server != nil {
		address = l.startServer()
	}
	l.flags = []string{
		"--root-dir=" + l.path("root"), "--run-dir=" + l.path("run"), "--log-dir=" + l.path("log"), "--log-links-dir=" + l.path("containers"),
		"--containerd-address=" + address, "--containerd-namespace=" + l.namespace(),
	}
	l.ok("images", "load", setup.image)
	return l
}

func (l *lane) namespace() string { return filepath.Base(l.dir) }

// startServer starts a containerd of the kind under test within the lane. Its program is a script, for which
// the machine of the moment is looked up.
func (l *lane) startServer() string {
	l.t.Helper()
	bin, err := testcontainerd.Bin(context.Background(), os.Getenv("PODRUN_E2E_CONTAINERD"))
	must(l.t, err)
	must(l.t, os.Mkdir(l.path("bin"), 0o755))
	must(l.t, os.Symlink(filepath.Join(bin, "containerd-shim-runc-v2"), l.path("bin", "containerd-shim-runc-v2")))
	// It is beneath nsenter, and dies with that.
	script := fmt.Sprintf("#!/bin/sh\nexec nsenter -t $(cat %s) -m -n -p -- setpriv --pdeathsig KILL %s/containerd \"$@\"\n", l.path("init"), bin)
	must(l.t, os.WriteFile(l.path("bin", "containerd"), []byte(script), 0o755))
	l.server, err = testcontainerd.Start(context.Background(), l.path("bin"), l.path("s"))
	must(l.t, err)
	return l.server.Address
}

// powerOn boots the lane's machine.
func (l *lane) powerOn() {
	l.t.Helper()
	l.boots++
	must(l.t, os.WriteFile(l.path("boot_id"), fmt.Appendf(nil, "%08d-1111-4222-8333-444444444444\n", l.boots), 0o644))
	script := `set -e; mount --bind "$BOOT" /proc/sys/kernel/random/boot_id; ip link set lo up; echo up; while :; do sleep 1000 & wait $! || :; done`
	l.power = exec.Command("unshare", "--pid", "--fork", "--kill-child", "--mount", "--propagation", "private", "--net", "--mount-proc",
		"bash", "-c", script)
	// In the environment, because what names the directory on its command line is taken for podrun's.
	l.power.Env = []string{"PATH=" + os.Getenv("PATH"), "BOOT=" + l.path("boot_id")}
	out, err := l.power.StdoutPipe()
	must(l.t, err)
	must(l.t, l.power.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "up\n" {
		l.t.Fatalf("the lane's machine does not start: %q, %v", line, err)
	}
	l.init = children(l.power.Process.Pid)[0]
	must(l.t, os.WriteFile(l.path("init"), fmt.Append(nil, l.init), 0o644))
	l.enter = []string{"nsenter", "-t", fmt.Sprint(l.init), "-m", "-n", "-p", "--"}
}

// powerOff ends all that runs in the lane, at once, and takes away what a boot takes away.
func (l *lane) powerOff() {
	l.t.Helper()
	if l.init == 0 {
		return
	}
	must(l.t, syscall.Kill(l.init, syscall.SIGKILL))
	_ = l.power.Wait() // it was killed
	l.init = 0
	if l.serving != nil {
		<-l.ended
		l.serving = nil
	}
	if l.server != nil {
		_ = l.server.Kill() // it has gone with the machine
	}
	await(l.t, patience, "all processes to be gone", func() error {
		if left := l.processes(); len(left) > 0 {
			return fmt.Errorf("%d: %s", left[0], cmdline(left[0]))
		}
		return nil
	})
	groups := l.cgroups()
	for _, group := range slices.Backward(groups) {
		below, _ := filepath.Glob(group + "/*/")
		for _, dir := range append(below, group) {
			_ = syscall.Rmdir(dir)
		}
	}
	must(l.t, errors.Join(os.RemoveAll(l.path("run")), os.RemoveAll(l.path("s", "state"))))
}

// inside runs a line of sh in the lane's machine.
func (l *lane) inside(line string) error {
	out, err := exec.Command(l.enter[0], append(slices.Clone(l.enter[1:]), "sh", "-c", line)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// servingPID is the serving podrun itself, beneath nsenter.
func (l *lane) servingPID() int {
	l.t.Helper()
	pid := 0
	await(l.t, patience, "podrun to be started", func() error {
		for _, child := range children(l.serving.Process.Pid) {
			if strings.HasPrefix(cmdline(child), setup.podrun) {
				pid = child
				return nil
			}
		}
		return errors.New("no process")
	})
	return pid
}

// endServe ends the serving podrun.
func (l *lane) endServe(signal syscall.Signal) {
	l.t.Helper()
	if l.serving == nil {
		return
	}
	must(l.t, syscall.Kill(l.servingPID(), signal))
	select {
	case <-l.ended:
	case <-time.After(patience):
		l.t.Fatalf("serve did not end after %v", signal)
	}
	l.serving = nil
}

// instance is a container's first process.
type instance struct {
	pid     int
	uid, id string
}

// pauseGroup begins the name of the cgroup of a pod's first process.
const pauseGroup = "pause-"

func isShim(pid int) bool { return strings.Contains(cmdline(pid), "containerd-shim") }

// parentIn is the parent that a process's status names.
func parentIn(status string) int {
	_, rest, _ := strings.Cut(status, "PPid:\t")
	line, _, _ := strings.Cut(rest, "\n")
	pid, _ := strconv.Atoi(line) // 0 for one that is gone
	return pid
}

// instances are the containers' processes that run, whatever podrun says. Only of pods that a status file was
// seen of.
func (l *lane) instances() []instance {
	var out []instance
	for _, pid := range pids() {
		groups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		// …/pod<uid>/<id>, the same in every hierarchy.
		rest := string(groups[strings.LastIndex(string(groups), "/pod")+1:])
		rest, _, _ = strings.Cut(strings.TrimPrefix(rest, "pod"), "\n")
		uid, id, _ := strings.Cut(rest, "/")
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		_, ns, _ := strings.Cut(string(status), "NSpid:")
		ns, _, _ = strings.Cut(ns, "\n")
		fields := strings.Fields(ns)
		zombie := strings.Contains(string(status), "State:\tZ")
		line := cmdline(pid)
		// Three levels: the host, the lane, the container. Where a pod's containers share the last, the first process of each
		// is what its shim started, as are those of commands in it.
		first := len(fields) == 3 && (fields[2] == "1" || strings.Contains(line, "echo start") && isShim(parentIn(string(status))))
		if l.uids[uid] && !zombie && first && !strings.HasPrefix(id, pauseGroup) && !strings.Contains(line, "runc") {
			out = append(out, instance{pid: pid, uid: uid, id: id})
		}
	}
	return out
}

// ask asks the lane's containerd itself.
func (l *lane) ask(question func(ctx context.Context, c *client.Client) error) error {
	l.ok("images") // starts podrun's own if it has ended
	address := l.path("run", "containerd", "containerd.sock")
	if l.server != nil {
		address = l.server.Address
	}
	return askContainerd(address, l.namespace(), question)
}

// askContainerd asks the containerd of that address about a namespace.
func askContainerd(address, namespace string, question func(ctx context.Context, c *client.Client) error) error {
	ctx, cancel := context.WithTimeout(namespaces.WithNamespace(context.Background(), namespace), 20*time.Second)
	defer cancel()
	c, err := client.New(address, client.WithTimeout(5*time.Second))
	if err != nil {
		return err
	}
	defer c.Close()
	return question(ctx, c)
}

// left complains about whatever is left after all pods have been stopped.
func (l *lane) left() error {
	err := l.leftovers(nil)
	var all []error
	for line := range strings.Lines(fmt.Sprint(err)) {
		// The daemon is there for as long as we ask it.
		own := strings.HasSuffix(strings.TrimSpace(line), "containerd --root-dir "+l.path("root")+" --run-dir "+l.path("run"))
		if server := l.server != nil && strings.Contains(line, "/containerd --config "+l.path("s", "config.toml")); err != nil && !own && !server {
			all = append(all, errors.New(strings.TrimSpace(line)))
		}
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", l.init))
	all = append(all, err)
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); strings.HasPrefix(fields[4], l.dir) {
			all = append(all, fmt.Errorf("mount %s", fields[4]))
		}
	}
	links, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", l.init))
	all = append(all, err)
	for line := range strings.Lines(string(links)) {
		if name, _, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && name != "lo" && !builtin[strings.TrimRight(name, "0123456789_")] {
			all = append(all, fmt.Errorf("network link %s", name))
		}
	}
	return errors.Join(append(all, l.ask(l.leftInContainerd))...)
}

// builtin are links that the kernel makes in every network namespace.
var builtin = map[string]bool{"sit": true, "tunl": true, "ip6tnl": true, "gre": true, "gretap": true, "erspan": true, "ip_vti": true, "ip6_vti": true, "ip6gre": true}

// leftInContainerd complains about records of containers and sandboxes, their snapshots, and leases.
func (l *lane) leftInContainerd(ctx context.Context, c *client.Client) error {
	var all []error
	found, err := c.ContainerService().List(ctx)
	all = append(all, err)
	for _, f := range found {
		all = append(all, fmt.Errorf("container %s", f.ID))
	}
	if l.server == nil || os.Getenv("PODRUN_E2E_CONTAINERD") == testcontainerd.Stock {
		records, err := c.SandboxStore().List(ctx)
		all = append(all, err)
		for _, r := range records {
			all = append(all, fmt.Errorf("sandbox record %s", r.ID))
		}
	}
	leases, err := c.LeasesService().List(ctx)
	all = append(all, err)
	for _, lease := range leases {
		all = append(all, fmt.Errorf("lease %s", lease.ID))
	}
	return errors.Join(append(all, l.leftSnapshots(ctx, c))...)
}

// leftSnapshots complains about root filesystems; images' layers are committed ones.
func (l *lane) leftSnapshots(ctx context.Context, c *client.Client) error {
	var all []error
	for _, name := range []string{"overlayfs", "native"} {
		_ = c.SnapshotService(name).Walk(ctx, func(_ context.Context, info snapshots.Info) error {
			if info.Kind == snapshots.KindActive {
				all = append(all, fmt.Errorf("snapshot %s", info.Name))
			}
			return nil
		}) // fails for a snapshotter that is not there
	}
	return errors.Join(all...)
}
