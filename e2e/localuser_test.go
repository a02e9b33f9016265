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
	var st unix.Stat_t
	must(t, unix.Stat(n.path("root"), &st))
	if st.Mode&0o777 != 0o700 {
		t.Errorf("the root directory has the mode %o", st.Mode&0o7777)
	}
}
