package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestPackageIsPurged: the pods run on when the Debian package is removed and end when it is purged; a purge that
// cannot end them fails, and can be repeated.
func TestPackageIsPurged(t *testing.T) {
	n := newNode(t)
	root := n.path("system")
	installed, saved := filepath.Join(root, "usr/bin/podrun"), filepath.Join(root, "usr/lib/podrun/podrun")
	script := func(name, action string) (string, error) {
		cmd := exec.Command("sh", filepath.Join("..", "packaging", name), action)
		cmd.Env = append(os.Environ(), "DPKG_ROOT="+root)
		said, err := cmd.CombinedOutput()
		return string(said), err
	}
	must(t, os.MkdirAll(filepath.Dir(installed), 0o755))
	must(t, os.MkdirAll(filepath.Join(root, "etc/default"), 0o755))
	podrun, err := os.ReadFile(setup.podrun)
	must(t, err)
	must(t, os.WriteFile(installed, podrun, 0o755))
	var settings strings.Builder
	for _, flag := range n.flags {
		name, value, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		fmt.Fprintf(&settings, "PODRUN_%s=%s\n", strings.ToUpper(strings.ReplaceAll(name, "-", "_")), value)
	}
	must(t, os.WriteFile(filepath.Join(root, "etc/default/podrun"), []byte(settings.String()), 0o644))
	n.write("a.yaml", manifest("a", "Always", forever))
	n.serve()
	p := n.ready("a-n")
	pid := n.mainPID(p, "c")
	n.end(syscall.SIGTERM)

	if said, err := script("preremove.sh", "upgrade"); err != nil || said != "" {
		t.Fatalf("%v: %s", err, said)
	}
	if _, err := os.Stat(saved); err == nil {
		t.Error("an upgrade keeps a copy")
	}
	for _, step := range [][2]string{{"preremove.sh", "remove"}, {"postremove.sh", "remove"}} {
		if said, err := script(step[0], step[1]); err != nil {
			t.Fatalf("%v: %v: %s", step, err, said)
		}
	}
	must(t, os.Remove(installed)) // dpkg does that in between
	if n.mainPID(p, "c") != pid {
		t.Error("removing the package ended the pod")
	}
	// Something else runs the pod at the moment.
	n.serve()
	n.ready("a-n")
	if said, err := script("postremove.sh", "purge"); err == nil || !strings.Contains(said, "could not be stopped; purge again") {
		t.Errorf("%v: %s", err, said)
	}
	n.end(syscall.SIGTERM)
	said, err := script("postremove.sh", "purge")
	if err != nil || !strings.Contains(said, "are left in "+n.path("root")) {
		t.Errorf("%v: %s", err, said)
	}
	if syscall.Kill(pid, 0) == nil {
		t.Error("the pod runs on after the purge")
	}
	if _, err := os.Stat(filepath.Dir(saved)); err == nil {
		t.Error("the copy is left")
	}
	if said, err := script("postremove.sh", "purge"); err != nil || said != "" { // once more
		t.Errorf("%v: %s", err, said)
	}
}
