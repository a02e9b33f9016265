package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// asNobody runs a line of shell as a user of the machine without any rights.
func asNobody(t *testing.T, line string) string {
	t.Helper()
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, _ := cmd.CombinedOutput()
	return string(out)
}

// forNobody returns a copy of podrun where a user without rights can execute it.
func forNobody(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pn")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	if out, err := exec.Command("cp", setup.podrun, dir+"/podrun").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir + "/podrun"
}

const withClaim = `
    volumeMounts: [{name: data, mountPath: /data}, {name: data, mountPath: /part, subPath: part}, {name: scratch, mountPath: /scratch},
      {name: memory, mountPath: /memory}, {name: conf, mountPath: /conf}]`

// TestLocalUserAndClaims: what containers put into volumes is out of other users' reach, a file above all that gives
// its caller root's rights; and containers that are not root's have all of it nevertheless.
func TestLocalUserAndClaims(t *testing.T) {
	n := newNode(t)
	// As /run and /var/lib are, and as a former version left its own.
	must(t, errors.Join(os.MkdirAll(n.path("root", "claims", "default", "data"), 0o755), os.Chmod(n.dir, 0o755),
		os.Chmod(n.path("root"), 0o755), os.Chmod(n.path("root", "claims", "default", "data"), 0o777)))
	two := func(name string, spec ...string) string {
		text := inContainer(manifest(name, "Always", "touch /dev/shm/x; "+forever, append(spec,
			"volumes: [{name: data, persistentVolumeClaim: {claimName: data}}, {name: scratch, emptyDir: {}}, {name: memory, emptyDir: {medium: Memory}}, {name: conf, configMap: {name: conf}}]")...), withClaim[5:])
		return text + "  - {name: other, image: podrun.example/box:1, command: [sleep, 1d]}\n"
	}
	n.write("conf.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf}\ndata: {k: of-a-configmap}\n")
	n.write("a.yaml", two("a"))
	n.write("b.yaml", two("b", "securityContext: {runAsUser: 1000, runAsGroup: 1000, runAsNonRoot: true}"))
	n.serve()
	n.ready("a-n")
	n.ready("b-n")
	n.says("a", "cp /bin/busybox /data/root; chmod 4755 /data/root; cp /data/root /scratch/root; chmod 4755 /scratch/root; cp /data/root /part/root; chmod 4755 /part/root; echo done", "done")
	n.says("b", "echo 1 >/scratch/x; echo 2 >/memory/x; cat /scratch/x /memory/x /conf/k; wc -l </etc/hosts >/dev/null && echo /data/root; id -u", "1\n2\nof-a-configmap/data/root\n1000")
	var reached []string
	must(t, filepath.WalkDir(n.dir, func(path string, d fs.DirEntry, err error) error {
		info, statErr := os.Stat(path)
		if err != nil || statErr != nil {
			return nil
		}
		rel, _ := filepath.Rel(n.dir, path)
		if within := strings.HasPrefix(rel, "root/") || strings.HasPrefix(rel, "run/sandboxes/"); within || info.Mode()&fs.ModeSetuid != 0 {
			reached = append(reached, path)
		}
		return nil
	}))
	if len(reached) < 10 {
		t.Fatalf("only %d files: %v", len(reached), reached)
	}
	for _, path := range reached {
		if out := asNobody(t, fmt.Sprintf("stat -c '%%A %%U' '%s' 2>/dev/null", path)); out != "" {
			t.Errorf("another user reaches %s: %s", path, out)
		}
	}
	if out := asNobody(t, "ls "+n.path("run")); !strings.Contains(out, "Permission denied") {
		t.Errorf("another user lists the run directory: %s", out)
	}
	out := asNobody(t, forNobody(t)+" get pods --run-dir "+n.path("run")+" --root-dir "+n.path("root"))
	if !strings.Contains(out, "run it as root") || strings.Contains(out, "not running") {
		t.Errorf("another user is told of pods that run: %s", out)
	}
	var st unix.Stat_t
	must(t, unix.Stat(n.path("root"), &st))
	if st.Mode&0o777 != 0o700 {
		t.Errorf("the root directory has the mode %o", st.Mode&0o7777)
	}
}

// TestDirectoriesOfALocalUser: whoever may replace a directory of podrun's, by its parent or by a link, could put
// there what root runs. Each command refuses it, and touches nothing there.
func TestDirectoriesOfALocalUser(t *testing.T) {
	n := bareNode(t)
	must(t, errors.Join(os.Chmod(n.dir, 0o755), os.Mkdir(n.path("open"), 0o755), os.Mkdir(n.path("trap"), 0o755),
		os.Chmod(n.path("open"), 0o777|fs.ModeSticky)))
	asNobody(t, fmt.Sprintf("umask 0; mkdir '%[1]s/q' '%[1]s/q/has'; ln -s '%[2]s' '%[1]s/link'; ln -s '%[2]s' '%[1]s/q/link'", n.path("open"), n.path("trap")))
	n.write("a.yaml", manifest("a", "Never", "true"))
	commands := [][]string{
		{"down", "--all"}, {"serve", "--manifests", n.manifests}, {"once", "--manifests", n.manifests}, {"containerd"},
		{"get", "pods"}, {"get", "events"}, {"logs", "a"}, {"exec", "a", "--", "true"}, {"images", "list"}, {"images", "load", setup.image},
		{"diff", "--manifests", n.manifests}, {"volumes", "rm", "x"},
	}
	tree := func() string {
		out, err := exec.Command("find", n.path("open"), n.path("trap"), "-printf", "%p %m %u\n").CombinedOutput()
		must(t, err)
		return string(out)
	}
	before := tree()
	for _, dir := range []string{"q/new", "q/has", "q/has/new/deep", "link", "q/link", "link/new"} {
		for _, flag := range []string{"root-dir", "run-dir", "log-dir"} {
			some := commands
			if dir != "q/new" || flag != "root-dir" {
				some = [][]string{commands[0], commands[1]}
			}
			for _, c := range some {
				r := n.run(append([]string{c[0], "--" + flag + "=" + n.path("open", dir)}, c[1:]...)...)
				if r.code != 2 || !strings.Contains(r.stderr, "is refused") || !strings.Contains(r.stderr, "is owned by user 65534") {
					t.Fatalf("%v, %s in %s: %s", c, flag, dir, r)
				}
			}
		}
	}
	if after := tree(); after != before {
		t.Errorf("it was changed:\n%s\n%s", before, after)
	}
	// A log directory that a group may replace, as Ubuntu's /var/log, is used.
	must(t, errors.Join(os.Mkdir(n.path("var"), 0o755), os.Chown(n.path("var"), 0, 65534), os.Chmod(n.path("var"), 0o775)))
	n.ok("get", "pods", "--log-dir="+n.path("var", "pods"))
}
