package volume

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/volume/mounts"
)

// mountCommand puts a command mount before the machine's, which notes down its arguments, and returns
// where. It then does what the script says.
func mountCommand(t *testing.T, script string) string {
	t.Helper()
	dir := t.TempDir()
	asked := filepath.Join(dir, "asked")
	text := "#!/bin/sh\necho \"$@\" >>" + asked + "\n" + script + "\n"
	if err := os.WriteFile(filepath.Join(dir, "mount"), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return asked
}

// newNFSFixture is one where the type of what is mounted is kind once a mount command was asked.
func newNFSFixture(t *testing.T, asked, kind string) fixture {
	f := newFixture(t)
	f.mounts.KindOn = func(string) (string, error) {
		if _, err := os.Stat(asked); err != nil {
			return "", nil
		}
		return kind, nil
	}
	return f
}

func exported(server string, readOnly bool) *v1.Pod {
	return podWith(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{Server: server, Path: "/srv", ReadOnly: readOnly}}})
}

func TestNFS(t *testing.T) {
	for _, c := range []struct {
		server   string
		readOnly bool
		want     string
	}{
		{"files.example", false, "-t nfs -o nodev -- files.example:/srv DIR"},
		{"192.0.2.1", true, "-t nfs -o nodev,ro -- 192.0.2.1:/srv DIR"},
		{"2001:db8::1", false, "-t nfs -o nodev -- [2001:db8::1]:/srv DIR"},
		{"[2001:db8::1]", false, "-t nfs -o nodev -- [2001:db8::1]:/srv DIR"},
	} {
		asked := mountCommand(t, "")
		f := newNFSFixture(t, asked, "nfs4")
		mounts, err := f.Setup(t.Context(), exported(c.server, c.readOnly), mounting(mountV), pod.Sandbox{})
		if err != nil {
			t.Fatal(err)
		}
		dir := f.root + "/pods/u1/volumes/kubernetes.io~nfs/v"
		got, err := os.ReadFile(asked)
		if want := strings.Replace(c.want, "DIR", dir, 1) + "\n"; err != nil || string(got) != want {
			t.Errorf("mount %q, %v, want %q", got, err, want)
		}
		if mounts[0].HostPath != dir || mounts[0].ReadOnly != c.readOnly {
			t.Errorf("%+v", mounts[0])
		}
	}
}

func TestNFSFails(t *testing.T) {
	mountCommand(t, "echo no route to host >&2; exit 32")
	_, err := newFixture(t).Setup(t.Context(), exported("files.example", false), mounting(mountV), pod.Sandbox{})
	if err == nil || !strings.Contains(err.Error(), "mount -t nfs -o nodev -- files.example:/srv") || !strings.HasSuffix(err.Error(), "exit status 32: no route to host") {
		t.Error(err)
	}
	t.Setenv("PATH", t.TempDir())
	_, err = newFixture(t).Setup(t.Context(), exported("files.example", false), mounting(mountV), pod.Sandbox{})
	if err == nil || !strings.Contains(err.Error(), "nfs: the machine has no mount command") {
		t.Error(err)
	}
}

// TestNFSThatIsMounted: a mounted export is not mounted again, and a file system of another type at
// its path is neither used nor unmounted.
func TestNFSThatIsMounted(t *testing.T) {
	needRoot(t)
	asked := mountCommand(t, "")
	f := newFixture(t)
	p := exported("files.example", false)
	dir := f.root + "/pods/u1/volumes/kubernetes.io~nfs/v"
	if err := errors.Join(os.MkdirAll(dir, 0o755), unix.Mount("tmpfs", dir, "tmpfs", 0, "")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if _, err := f.Setup(t.Context(), p, mounting(mountV), pod.Sandbox{}); err == nil || !strings.Contains(err.Error(), `the type "tmpfs"`) {
		t.Errorf("used: %v", err)
	}
	f.mounts.KindOn = func(string) (string, error) { return "nfs", nil }
	if _, err := f.Setup(t.Context(), p, mounting(mountV), pod.Sandbox{}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(asked); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("mounted again: %v", err)
	}
	if err := f.Teardown(t.Context(), p.UID); err != nil || len(f.left(t)) != 1 {
		t.Errorf("%v, %v", err, f.left(t))
	}
}

// TestNFSThatIsNone: if the mount command mounts something other than NFS, that is not used and is
// unmounted, with everything below it.
func TestNFSThatIsNone(t *testing.T) {
	needRoot(t)
	host := t.TempDir()
	if err := errors.Join(os.Mkdir(host+"/below", 0o700), unix.Mount("tmpfs", host+"/below", "tmpfs", 0, "")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(host+"/below", unix.MNT_DETACH) })
	mountCommand(t, "for last; do :; done; exec "+machineMount(t)+" --rbind "+host+" \"$last\"")
	f := newFixture(t)
	p := exported("files.example", false)
	_, err := f.Setup(t.Context(), p, mounting(mountV), pod.Sandbox{})
	if err == nil || !strings.Contains(err.Error(), "it mounted a file system of the type") {
		t.Errorf("used: %v", err)
	}
	if left := f.left(t); len(left) > 0 {
		t.Errorf("left mounted: %v", left)
	}
	if kind, err := mounts.KindOn(host + "/below"); err != nil || kind != "tmpfs" {
		t.Errorf("what was below is %q, %v", kind, err)
	}
	mountCommand(t, "exit 0")
	_, err = f.Setup(t.Context(), p, mounting(mountV), pod.Sandbox{})
	if err == nil || !strings.Contains(err.Error(), "but there is no mount on") {
		t.Errorf("used: %v", err)
	}
}

// machineMount is the machine's own mount command.
func machineMount(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("mount")
	if err != nil {
		t.Skip(err)
	}
	return path
}

// TestNFSServerIsNoOption: a text that is not the name of a server never reaches the mount command,
// whether it was validated or not.
func TestNFSServerIsNoOption(t *testing.T) {
	for _, server := range []string{"--fstab=/tmp/x", "-o", "LABEL=x", "a:/b,c", "", "a\nb"} {
		asked := mountCommand(t, "")
		f := newNFSFixture(t, asked, "nfs")
		if _, err := f.Setup(t.Context(), exported(server, false), mounting(mountV), pod.Sandbox{}); err == nil || !strings.Contains(err.Error(), "must be a host name") {
			t.Errorf("%q: %v", server, err)
		}
		if _, err := os.Stat(asked); err == nil {
			t.Errorf("%q: mount was asked", server)
		}
	}
}

// TestNFSServerIsSilent: a server that does not answer blocks no caller, has one mount command at a
// time, and that command ends with its child processes when the pod is removed.
func TestNFSServerIsSilent(t *testing.T) {
	dir := t.TempDir()
	asked := mountCommand(t, "sleep 1000 & echo $! >"+dir+"/helper.new; mv "+dir+"/helper.new "+dir+"/helper; wait")
	f := newFixture(t)
	f.mounts.Patience = time.Millisecond
	p := exported("files.example", false)
	for range 3 {
		_, err := f.Setup(t.Context(), p, mounting(mountV), pod.Sandbox{})
		if err == nil || !strings.HasSuffix(err.Error(), "goes on; the server has not answered yet") {
			t.Fatal(err)
		}
	}
	var helper int
	eventually(t, "a helper", func() bool {
		text, err := os.ReadFile(dir + "/helper")
		if err == nil {
			helper, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return err == nil
	})
	if got, err := os.ReadFile(asked); err != nil || strings.Count(string(got), "\n") != 1 {
		t.Errorf("mount %q, %v", got, err)
	}
	if err := f.Teardown(t.Context(), p.UID); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the helper's end", func() bool { return !alive(helper) })
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// alive: there is such a process, and it has not ended.
func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(text), ") ")
	return err == nil && !strings.HasPrefix(state, "Z")
}

// TestNFSServerAnswersLate: the pod starts when the server answers.
func TestNFSServerAnswersLate(t *testing.T) {
	dir := t.TempDir()
	mountCommand(t, "while [ ! -e "+dir+"/up ]; do sleep 0.01; done; touch "+dir+"/mounted")
	f := newNFSFixture(t, dir+"/mounted", "nfs")
	f.mounts.Patience = time.Millisecond
	p := exported("files.example", false)
	if _, err := f.Setup(t.Context(), p, mounting(mountV), pod.Sandbox{}); err == nil {
		t.Fatal("mounted by a server that does not answer")
	}
	if err := os.WriteFile(dir+"/up", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.mounts.Patience = time.Minute
	if _, err := f.Setup(t.Context(), p, mounting(mountV), pod.Sandbox{}); err != nil {
		t.Error(err)
	}
}
