package vm

import (
	"strings"
	"testing"
)

// container is a script that does what a container engine does for a privileged container: its process 1 is in a cgroup
// of its own, which it sees as the root. It runs two podruns at once, and then another one. No other process is in the
// cgroup.
const container = `
mkdir /sys/fs/cgroup/container
echo "+cpu +memory" >/sys/fs/cgroup/cgroup.subtree_control
exec unshare --pid --fork sh -euc '
	echo 0 >/sys/fs/cgroup/container/cgroup.procs
	exec unshare --cgroup --mount sh -euc "
		mount -t proc proc /proc
		umount -l /sys/fs/cgroup # Linux 6.1 mounts no file system over itself
		mount -t cgroup2 cgroup2 /sys/fs/cgroup
		grep -qx 0::/ /proc/self/cgroup
		once() {
			podrun once --containerd-address embedded --root-dir /inner/root --run-dir /inner/run --log-dir /inner/log \
				--logs all --rm --manifests \$1
		}
		once /inner/a.yaml & first=\$!
		once /inner/b.yaml
		wait \$first
		once /inner/a.yaml
	"
'
`

// TestInAContainer: in a privileged container with a private cgroup namespace, as Docker makes it, pods have their
// limits, also if several podruns begin at once, and if another one follows.
func TestInAContainer(t *testing.T) {
	m := bootServing(t)
	m.sh("systemctl stop podrun; podrun down --all; install -D -m 644 /vm/box.tar /inner/root/images/box.tar")
	m.write("/inner/container.sh", container)
	numbers := map[string]string{"a": "7701", "b": "7702"}
	for pod, number := range numbers {
		m.write("/inner/"+pod+".yaml", inContainer(podOf(pod,
			"sleep "+number+" & while [ ! -e /t/end ]; do sleep 1; done; echo limit $(cat /sys/fs/cgroup/memory.max)",
			"restartPolicy: Never", "hostNetwork: true"), "resources: {limits: {memory: 32Mi, cpu: 200m}}"))
	}
	m.sh(`systemd-run --unit=container sh -c 'sh -eu /inner/container.sh >/inner/out 2>/inner/err; echo $? >/inner/code'`)
	for pod, number := range numbers {
		// Either it runs, or it never will.
		m.await(pod, `pgrep -xf "sleep `+number+`" || [ -e /inner/code ]`)
		group := m.sh(`cut -d: -f3 /proc/$(pgrep -xf "sleep ` + number + `")/cgroup || cat /inner/err`)
		if !strings.HasPrefix(group, "/container/podrun/") {
			t.Fatalf("the container of %s is in %s", pod, group)
		}
		for file, want := range map[string]string{
			"memory.max": "33554432", "memory.swap.max": "0", "../memory.max": "33554432", "../cpu.max": "20000 100000",
		} {
			if got := m.sh("cat /sys/fs/cgroup" + group + "/" + file); got != want {
				t.Errorf("%s of %s is %s, want %s", file, group, got, want)
			}
		}
	}
	if got := m.sh("cat /sys/fs/cgroup/container/cgroup.procs"); got != "" {
		t.Errorf("in the container's root are still %q", got)
	}
	m.sh("touch /trace/end")
	m.await("the end", "[ -e /inner/code ]")
	out := m.sh("cat /inner/out")
	if code := m.sh("cat /inner/code"); code != "0" || strings.Count(out, "limit 33554432") != 3 {
		t.Errorf("exit code %s\n%s\n%s", code, out, m.sh("cat /inner/err"))
	}
}
