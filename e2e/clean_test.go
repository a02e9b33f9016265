package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/nftables"
	"github.com/moby/sys/mountinfo"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/test/testcontainerd"
)

// clean stops all that the node runs and complains about whatever stays. When the test has failed it shows
// what serve said.
func (n *node) clean() {
	defer n.log.Close()
	if n.serving != nil {
		n.end(syscall.SIGTERM)
	}
	links := n.links()
	if r := n.run("down", "--all"); r.code != 0 && setup.address != "" {
		n.t.Errorf("down --all: %v", r)
	}
	n.unmountPlugins()
	left := errors.New("not looked")
	for deadline := time.Now().Add(patience); left != nil && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		left = n.leftovers(links)
	}
	if left != nil {
		n.t.Errorf("left behind: %v", left)
	}
	if n.t.Failed() {
		said, _ := os.ReadFile(n.log.Name())
		n.t.Logf("serve said:\n%s", said)
	}
	// Other cases must not suffer from this one's failure.
	if left != nil {
		n.force()
	}
	testcontainerd.RemoveRunc(filepath.Base(n.dir))
	if err := os.RemoveAll(n.dir); err != nil {
		n.t.Error(err)
	}
	setup.mu.Lock()
	defer setup.mu.Unlock()
	delete(setup.nodes, n)
}

// unmountPlugins unmounts the directory of plugins, which podrun mounts on itself for good.
func (n *node) unmountPlugins() {
	all, err := mountinfo.GetMounts(mountinfo.PrefixFilter(n.path("kubelet")))
	if err != nil {
		n.t.Error(err)
	}
	for _, m := range slices.Backward(all) {
		if err := unix.Unmount(m.Mountpoint, unix.MNT_DETACH); err != nil {
			n.t.Errorf("unmounting %s: %v", m.Mountpoint, err)
		}
	}
}

// links are the network links of the node's bridge.
func (n *node) links() []string {
	record, err := os.ReadFile(n.path("run", "network", "bridge.json"))
	if err != nil {
		return nil
	}
	_, rest, _ := strings.Cut(string(record), `"bridge":"`)
	name, _, _ := strings.Cut(rest, `"`)
	return []string{name}
}

// tablesOf are the nftables tables of the node's bridge.
func tablesOf(links []string) ([]string, error) {
	c, err := nftables.New()
	if err != nil {
		return nil, err
	}
	all, err := c.ListTables()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, table := range all {
		if len(links) > 0 && strings.HasPrefix(table.Name, links[0]) {
			found = append(found, table.Name)
		}
	}
	return found, nil
}

// leftovers returns an error that names all that is left of the node.
func (n *node) leftovers(links []string) error {
	var left []error
	for _, pid := range n.processes() {
		left = append(left, fmt.Errorf("process %d: %s", pid, cmdline(pid)))
		for _, child := range children(pid) {
			left = append(left, fmt.Errorf("its child %d: %s", child, cmdline(child)))
		}
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(n.dir))
	left = append(left, err)
	for _, m := range mounts {
		left = append(left, fmt.Errorf("mount %s", m.Mountpoint))
	}
	for _, link := range links {
		if _, err := os.Stat("/sys/class/net/" + link); err == nil {
			left = append(left, fmt.Errorf("network link %s", link))
		}
	}
	tables, err := tablesOf(links)
	left = append(left, err)
	for _, table := range tables {
		left = append(left, fmt.Errorf("nftables table %s", table))
	}
	for _, group := range n.cgroups() {
		left = append(left, fmt.Errorf("cgroup %s", group))
	}
	for _, dir := range []string{
		n.path("root", "pods"), n.path("log"), n.path("run", "sandboxes"), n.path("run", "status"),
		n.path("run", "etc"), n.path("run", "network"), n.path("run", "owners"),
	} {
		_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if _, missing := unix.Lgetxattr(path, "trusted.podrun.retained", nil); missing == nil {
				return fs.SkipDir // the logs of a pod that did not finish
			}
			if err == nil && path != dir {
				left = append(left, fmt.Errorf("file %s", path))
			}
			return nil // what vanishes meanwhile is not left
		})
	}
	return errors.Join(left...)
}

// processes are those that name the node's directory or its namespace in containerd: podrun, its daemon,
// shims, and what runs in its containers.
func (n *node) processes() []int {
	var out []int
	for _, pid := range pids() {
		line := cmdline(pid)
		if pid == os.Getpid() || !strings.Contains(line, n.dir) && !strings.Contains(line, "-namespace "+filepath.Base(n.dir)+" ") {
			continue
		}
		out = append(out, pid)
	}
	return out
}

// cgroups are those of the pods that the test has seen.
func (n *node) cgroups() []string {
	var out []string
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil // what vanishes meanwhile is not left
		}
		// pod and the UID; with systemd it is part of the name of a slice.
		name := strings.TrimSuffix(d.Name(), ".slice")
		if i := strings.LastIndex(name, "pod"); i >= 0 && n.uids[name[i+len("pod"):]] {
			out = append(out, path)
		}
		return nil
	})
	return out
}

// force ends what is left, by process id, mount point and name.
func (n *node) force() {
	links := n.links()
	for range 3 {
		for _, pid := range n.processes() {
			for _, child := range children(pid) {
				_ = syscall.Kill(child, syscall.SIGKILL)
			}
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	mounts, _ := mountinfo.GetMounts(mountinfo.PrefixFilter(n.dir))
	for i := len(mounts) - 1; i >= 0; i-- {
		_ = syscall.Unmount(mounts[i].Mountpoint, syscall.MNT_DETACH)
	}
	for _, name := range links {
		if link, err := netlink.LinkByName(name); err == nil {
			_ = netlink.LinkDel(link)
		}
	}
	for _, group := range n.cgroups() {
		inner, _ := filepath.Glob(group + "/*/")
		for _, dir := range append(inner, group) {
			_ = os.Remove(dir)
		}
	}
}

// pids are all processes.
func pids() []int {
	var out []int
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

func cmdline(pid int) string {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.ReplaceAll(string(data), "\x00", " ")
}

func children(pid int) []int {
	var out []int
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, field := range strings.Fields(string(data)) {
		if child, err := strconv.Atoi(field); err == nil {
			out = append(out, child)
		}
	}
	return out
}

// mainPID is the host's process id of a running container's first process: the only one that is number 1 in
// a cgroup named after the container.
func (n *node) mainPID(p *v1.Pod, container string) int {
	n.t.Helper()
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if s.Name != container {
			continue
		}
		_, id, _ := strings.Cut(s.ContainerID, "://")
		for _, pid := range pids() {
			groups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
			status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			if id != "" && inGroup(string(groups), id) && strings.Contains(string(status), fmt.Sprintf("NSpid:\t%d\t1\n", pid)) {
				return pid
			}
		}
	}
	n.t.Fatalf("no process of %s in %s: %s", container, p.Name, asJSON(p.Status.ContainerStatuses))
	return 0
}

// inGroup reports whether the name of one of these cgroups begins so. With systemd they are scopes of podrun's.
func inGroup(groups, name string) bool {
	return strings.Contains(groups, "/"+name) || strings.Contains(groups, "/podrun-"+name)
}

// kill kills a container's process the way a crash does.
func (n *node) kill(p *v1.Pod, container string) {
	n.t.Helper()
	must(n.t, syscall.Kill(n.mainPID(p, container), syscall.SIGKILL))
}
