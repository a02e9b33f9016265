package containerd_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemontest"
)

// machinesNull returns the identity of the machine's /dev/null, in the format of identify, and its owner.
func machinesNull(t *testing.T) (identity string, owner uint32) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(os.DevNull, &st); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d:%d", st.Dev, st.Ino), st.Uid
}

// identify prints the identities of a shell's standard streams.
const identify = `for n in 0 1 2; do stat -L -c %d:%i /proc/$$/fd/$n; done; cat /dev/stdin`

// TestMachinesNullIsNotPassedOn: no process has the machine's /dev/null open, whose owner and mode it could change.
func TestMachinesNullIsNotPassedOn(t *testing.T) {
	for name, start := range daemontest.Kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, start(t), "sleep 1000")
			null, _ := machinesNull(t)
			c := r.run(t)
			for _, line := range []string{identify, strings.ReplaceAll(identify, "$$", "1")} {
				var out bytes.Buffer
				code, err := r.Exec(t.Context(), c.ID, []string{"sh", "-c", line}, runtime.ExecIO{Stdout: &out})
				if got := strings.Fields(out.String()); err != nil || code != 0 || len(got) != 3 || strings.Contains(out.String(), null+"\n") {
					t.Errorf("%s: %q, %d, %v; the machine's is %s", line, got, code, err, null)
				}
			}
			if code, err := r.Exec(t.Context(), c.ID, []string{"cat"}, runtime.ExecIO{}); code != 0 || err != nil {
				t.Errorf("no streams: %d, %v", code, err)
			}
		})
	}
}

// TestNullOfAVolume: a volume has its own /dev/null for runc.
func TestNullOfAVolume(t *testing.T) {
	d := daemontest.Embedded(t)
	runtimes := connect(t, d)
	load(t, runtimes)
	null, owner := machinesNull(t)
	file := func(t *testing.T, dir, name string) {
		must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o666))
	}
	for name, c := range map[string]struct {
		fill    func(t *testing.T, dir string)
		mounts  []string // container paths of the volume, or of the file null in it
		message string
		refused string
	}{
		"messages to /dev/null":      {message: "/dev/../dev/null"},
		"a message by way of a link": {fill: func(t *testing.T, dir string) { must(t, os.Symlink("/dev", filepath.Join(dir, "x"))) }, mounts: []string{"/v"}, message: "/v/x/null", refused: "the machine's own /dev/null"},
		"a file by way of a link": {fill: func(t *testing.T, dir string) {
			must(t, os.Symlink("/dev", filepath.Join(dir, "x")))
			file(t, dir, "null")
		}, mounts: []string{"/v", "/v/x/null"}, refused: "the machine's own /dev/null"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, os.Chmod(dir, 0o777))
			if c.fill != nil {
				c.fill(t, dir)
			}
			r := rigOn(t, d, runtimes, identify+"; sleep 1000", func(p *v1.Pod) {
				p.Name += strings.ReplaceAll(strings.ReplaceAll(name, " ", "-"), "/", "-")
				p.Spec.Containers[0].TerminationMessagePath = c.message
				p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{RunAsUser: new(int64(1000))}
				for _, at := range c.mounts {
					p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: "v", MountPath: at})
				}
			})
			for _, at := range c.mounts {
				from := dir
				if strings.HasSuffix(at, "null") {
					from = filepath.Join(dir, "null")
				}
				r.start.Mounts = append(r.start.Mounts, pod.Mount{HostPath: from, ContainerPath: at})
			}
			err := r.StartContainer(t.Context(), r.start)
			var failed *runtime.StartError
			switch {
			case c.refused == "" && err != nil, c.refused != "" && (!errors.As(err, &failed) || !strings.Contains(err.Error(), c.refused)):
				t.Errorf("got %v, want %q", err, c.refused)
			case err == nil:
				var out bytes.Buffer
				id := find(t, r.Runtime, r.key, "main", 0).ID
				daemontest.Eventually(t, "the streams are known", func() bool {
					out.Reset()
					code, err := r.Exec(t.Context(), id, []string{"sh", "-c", "stat -L -c %d:%i /proc/1/fd/0"}, runtime.ExecIO{Stdout: &out})
					return err == nil && code == 0 && out.Len() > 0
				})
				if strings.TrimSpace(out.String()) == null {
					t.Errorf("its standard input is the machine's %s", os.DevNull)
				}
			}
			if _, now := machinesNull(t); now != owner {
				_ = os.Chown(os.DevNull, int(owner), -1)
				t.Errorf("the machine's %s belongs to %d", os.DevNull, now)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
