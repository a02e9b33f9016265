package vm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestUserNamespaces: pods with users of their own write to volumes on several file systems. Inside, and on the disk,
// files have the owners that they have inside; the processes are nobody outside, and no two pods share a user.
func TestUserNamespaces(t *testing.T) {
	m := bootServing(t)
	systems := []string{"ext4"} // the machine's root
	m.sh("mkdir -p /data/ext4 && chmod 700 /data/ext4")
	for _, kind := range []string{"xfs", "btrfs"} {
		r := m.run("sh", "-euc", fmt.Sprintf(`modprobe loop; truncate -s 400M /data/%[1]s.img; mkfs.%[1]s -q /data/%[1]s.img
			mkdir -p /data/%[1]s; mount -o loop /data/%[1]s.img /data/%[1]s; chmod 700 /data/%[1]s`, kind))
		if r.Code != 0 {
			t.Errorf("no %s on %s: %v", kind, m.sh("uname -r"), r)
			continue
		}
		systems = append(systems, kind)
	}
	memory := !m.isBefore(6, 3)
	m.write("/etc/pods/text.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: text}\ndata: {key: value}\n")
	for _, pod := range []string{"u1", "u2"} {
		m.write("/etc/pods/"+pod+".yaml", mappedPod(pod, systems, memory))
	}
	if !memory {
		m.write("/etc/pods/u3.yaml", mappedPod("u3", systems, true))
		m.await("the reason to be said", "podrun get pods u3 | grep 'its file system cannot be shown with other owners here'")
		m.sh("rm /etc/pods/u3.yaml")
	}
	var first []int // of the pods' users
	for _, pod := range []string{"u1", "u2"} {
		m.await(pod, isReady(pod))
		first = append(first, seesOwnUsers(t, m, pod, systems))
	}
	if slices.Sort(first); first[0] < 65536 || first[1]-first[0] < 65536 {
		t.Errorf("the pods' users begin at %v", first)
	}
	m.sh("systemctl stop podrun; podrun down --all")
	if got := m.sh("grep -c -E '/var/lib/podrun/.*(volumes|users)' /proc/mounts || true"); got != "0" {
		t.Errorf("%s mounts are left: %s", got, m.sh("cat /proc/mounts"))
	}
	for _, kind := range systems[1:] {
		m.sh("umount /data/" + kind)
	}
}

// isBefore reports whether the machine's kernel is older than a version.
func (m *machine) isBefore(major, minor int) bool {
	m.t.Helper()
	var is [2]int
	_, err := fmt.Sscanf(m.sh("uname -r"), "%d.%d", &is[0], &is[1])
	must(m.t, err)
	return slices.Compare(is[:], []int{major, minor}) < 0
}

// mappedPod is the manifest of a pod with users of its own and a directory of each file system. Without memory it has
// no volume in memory, which older kernels cannot show with other owners.
func mappedPod(name string, systems []string, memory bool) string {
	volumes := []string{"- {name: e, emptyDir: {}}", "- {name: text, configMap: {name: text, defaultMode: 0400}}"}
	mounts := []string{
		"{name: e, mountPath: /v/empty}", "{name: text, mountPath: /text}", "{name: m, mountPath: /v/memory}",
	}
	for _, s := range systems {
		volumes = append(volumes, fmt.Sprintf("- {name: %s, hostPath: {path: /data/%[1]s}}", s))
		mounts = append(mounts, fmt.Sprintf("{name: %s, mountPath: /v/%[1]s}", s))
	}
	script := "echo > /own; sleep 7654" + name[1:] + " & " + forever
	text := strings.Replace(podOf(name, script, volumes...), "spec:\n", "spec:\n  hostUsers: false\n", 1)
	if !memory {
		text = strings.Replace(text, "medium: Memory", "medium: ''", 1)
	}
	return strings.Replace(text, "{name: m, mountPath: /m}]", strings.Join(mounts, ", ")+"]", 1)
}

// seesOwnUsers verifies the owners of a pod's files, and returns the machine's number of its root.
func seesOwnUsers(t *testing.T, m *machine, pod string, systems []string) int {
	t.Helper()
	in := func(script string) string { return m.sh("podrun exec " + pod + " -- sh -euc '" + script + "'") }
	want := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %s: %s, want %s", pod, what, got, want)
		}
	}
	ids := strings.Fields(in("cat /proc/self/uid_map"))
	if len(ids) != 3 || ids[0] != "0" || ids[2] != "65536" {
		t.Fatalf("%s: its users are %v", pod, ids)
	}
	want("groups", strings.Join(strings.Fields(in("cat /proc/self/gid_map")), " "), strings.Join(ids, " "))
	want("the config map", in("cat /text/key; echo; stat -Lc %u:%g:%a /text/key"), "value\n0:0:400")
	for _, s := range append([]string{"empty", "memory"}, systems...) {
		file := "/v/" + s + "/" + pod
		want("a file of root's on "+s, in("echo > "+file+"; stat -c %u:%g "+file), "0:0")
		want("a file that is given away on "+s, in("echo > "+file+"7; chown 7:8 "+file+"7; stat -c %u:%g "+file+"7"), "7:8")
	}
	for _, s := range systems {
		file := "/data/" + s + "/" + pod
		want("outside, the file of root's on "+s, m.sh("stat -c %u:%g "+file), "0:0")
		want("outside, the other file on "+s, m.sh("stat -c %u:%g "+file+"7"), "7:8")
	}
	pid := m.sh(`pgrep -xf "sleep 7654` + pod[1:] + `"`)
	want("outside, the owner of its process", m.sh("stat -c %u:%g /proc/"+pid), ids[1]+":"+ids[1])
	want("outside, the owner of a file of its own", m.sh("stat -c %u:%g /proc/"+pid+"/root/own"), ids[1]+":"+ids[1])
	number, err := strconv.Atoi(ids[1])
	must(t, err)
	return number
}
