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

// system is a directory in which dpkg installs packages: for these the root directory.
type system struct {
	t    *testing.T
	root string
	// tools has all programs of this machine but runc, which is in sbin once its package is installed.
	tools, sbin string
}

func newSystem(t *testing.T, root string) *system {
	t.Helper()
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("there is no dpkg")
	}
	s := &system{t, root, filepath.Join(root, "tools"), filepath.Join(root, "usr/sbin")}
	for _, dir := range []string{s.tools, s.sbin, filepath.Join(root, "var/lib/dpkg/info"), filepath.Join(root, "var/lib/dpkg/updates")} {
		must(t, os.MkdirAll(dir, 0o755))
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		programs, _ := os.ReadDir(dir)
		for _, p := range programs {
			if p.Name() != "runc" {
				_ = os.Symlink(filepath.Join(dir, p.Name()), filepath.Join(s.tools, p.Name())) // the first one counts
			}
		}
	}
	// Nobody calls it: dpkg leaves the directory when runc is removed.
	must(t, os.WriteFile(filepath.Join(s.sbin, "other"), nil, 0o755))
	must(t, os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o644))
	return s
}

func (s *system) path() string { return s.sbin + ":" + s.tools }

// install builds and installs a package of these files, with scripts and files of settings from packaging.
func (s *system) install(name string, files map[string]string, depends string) {
	s.t.Helper()
	dir := filepath.Join(s.root, "build", name)
	control := filepath.Join(dir, "DEBIAN")
	must(s.t, os.MkdirAll(control, 0o755))
	must(s.t, os.WriteFile(filepath.Join(control, "control"), fmt.Appendf(nil,
		"Package: %s\nVersion: 1\nArchitecture: all\nMaintainer: n\nDescription: d\n%s", name, depends), 0o644))
	for at, from := range files {
		text, err := os.ReadFile(from)
		must(s.t, err)
		must(s.t, os.MkdirAll(filepath.Dir(filepath.Join(dir, at)), 0o755))
		must(s.t, os.WriteFile(filepath.Join(dir, at), text, 0o755))
	}
	deb := dir + ".deb"
	if out, err := exec.Command("dpkg-deb", "-Znone", "-b", dir, deb).CombinedOutput(); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	// Its own /run has the directory by which scripts know that systemd runs the machine.
	s.mustDpkg([]string{"unshare", "-m", "sh", "-c",
		`mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system && exec "$@"`, "sh"}, "-i", deb)
}

// mustDpkg runs dpkg, which must succeed, within the command enter.
func (s *system) mustDpkg(enter []string, args ...string) string {
	s.t.Helper()
	said, err := s.dpkg(enter, args...)
	if err != nil {
		s.t.Fatalf("dpkg %s: %v: %s", args, err, said)
	}
	return said
}

func (s *system) dpkg(enter []string, args ...string) (string, error) {
	line := append(append([]string{}, enter...),
		"dpkg", "--root="+s.root, "--force-script-chrootless", "--force-not-root", "--log=/dev/null")
	line = append(line, args...)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = []string{"PATH=" + s.path()}
	said, err := cmd.CombinedOutput()
	return string(said), err
}

// TestPackageIsPurged: the pods run on when the Debian package is removed and end when it is purged, also if apt has
// removed runc before; a purge that cannot end them fails, and can be repeated. dpkg has removed the settings by then.
// What is installed below another root than the machine's does not concern the machine's service.
func TestPackageIsPurged(t *testing.T) {
	n := newNode(t)
	s := newSystem(t, n.dir)
	runc, err := exec.LookPath("runc")
	must(t, err)
	called := n.path("called")
	must(t, os.Remove(filepath.Join(s.tools, "systemctl")))
	must(t, os.WriteFile(filepath.Join(s.tools, "systemctl"), []byte("#!/bin/sh\necho $* >>"+called+"\n"), 0o755))
	s.install("runc", map[string]string{"usr/sbin/runc": runc}, "")
	control := filepath.Join(n.path("build"), "podrun/DEBIAN")
	must(t, os.MkdirAll(control, 0o755))
	must(t, os.WriteFile(filepath.Join(control, "conffiles"), []byte("/etc/default/podrun\n"), 0o644))
	s.install("podrun", map[string]string{
		"usr/bin/podrun": setup.podrun, "etc/default/podrun": "../packaging/default",
		"DEBIAN/postinst": "../packaging/postinstall.sh", "DEBIAN/prerm": "../packaging/preremove.sh",
		"DEBIAN/postrm": "../packaging/postremove.sh",
	}, "Depends: runc\n")
	if text, err := os.ReadFile(called); err == nil {
		t.Errorf("systemctl %s", text)
	}
	ran := n.path("ran")
	settings := "  # comment\n\nPODRUN_MANIFEST_URL_HEADER=Authorization: touch " + ran + "\nPODRUN_A='$(touch " + ran + ")'\n" +
		"touch " + ran + "\nPODRUN_A[$(touch " + ran + ")]=x\nPATH=/nowhere\n"
	for i, flag := range n.flags {
		name, value, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		if i < 3 { // the package's root is not the machine's
			value = strings.TrimPrefix(value, n.dir)
		}
		value = []string{value, "'" + value + "'", `"` + value + `"  `}[i%3]
		between := []string{"=%s\n", " = %s\r\n"}[i%2]
		settings += fmt.Sprintf("PODRUN_%s"+between, strings.ToUpper(strings.ReplaceAll(name, "-", "_")), value)
	}
	must(t, os.WriteFile(n.path("etc/default/podrun"), []byte(strings.TrimSuffix(settings, "\n")), 0o600))
	n.write("a.yaml", manifest("a", "Always", forever))
	t.Cleanup(func() { n.env = nil }) // what cleans up needs runc
	n.env = []string{"PATH=" + s.path()}
	n.serve()
	p := n.ready("a-n")
	pid := n.mainPID(p, "c")
	n.end(syscall.SIGTERM)

	saved := n.path("usr/lib/podrun")
	s.mustDpkg(nil, "-i", n.path("build/podrun.deb"))
	if _, err := os.Stat(saved); err == nil {
		t.Error("an upgrade keeps a copy")
	}
	s.mustDpkg(nil, "--remove", "podrun")
	if n.mainPID(p, "c") != pid {
		t.Error("removing the package ended the pod")
	}
	if info, err := os.Stat(filepath.Join(saved, "settings")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the copy of the settings: %v, %v", info, err)
	}
	// What a purge does not understand is not guessed.
	good, err := os.ReadFile(filepath.Join(saved, "settings"))
	must(t, err)
	for _, bad := range []string{`PODRUN_ROOT_DIR="/a"/b`, "PODRUN_ROOT_DIR=/a\\\n/b", `PODRUN_RUN_DIR=/a\ b`} {
		must(t, os.WriteFile(filepath.Join(saved, "settings"), []byte(bad+"\n"), 0o600))
		if said, err := s.dpkg(nil, "--purge", "podrun"); err == nil || !strings.Contains(said, "purge again") {
			t.Errorf("%s: %v: %s", bad, err, said)
		}
	}
	must(t, os.WriteFile(filepath.Join(saved, "settings"), good, 0o600))
	// Something else runs the pod at the moment.
	n.serve()
	n.ready("a-n")
	if said, err := s.dpkg(nil, "--purge", "podrun"); err == nil || !strings.Contains(said, "could not be stopped; purge again") {
		t.Errorf("%v: %s", err, said)
	}
	n.end(syscall.SIGTERM)
	s.mustDpkg(nil, "--purge", "runc")
	if said := s.mustDpkg(nil, "--purge", "podrun"); !strings.Contains(said, "are left in "+n.path("root")) {
		t.Error(said)
	}
	if syscall.Kill(pid, 0) == nil {
		t.Error("the pod runs on after the purge")
	}
	for _, path := range []string{saved, n.path("etc/default/podrun"), filepath.Join(s.sbin, "runc"), ran} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s is there", path)
		}
	}
}
