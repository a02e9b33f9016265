package containerd_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemontest"
)

// link returns a function that makes a symbolic link in a volume.
func link(to, name string) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		must(t, os.Symlink(to, filepath.Join(dir, name)))
	}
}

// TestMountsOfAContainer: volumes may be anywhere except where runc isolates the container, whichever way they get there.
func TestMountsOfAContainer(t *testing.T) {
	d := daemontest.Embedded(t)
	runtimes := connect(t, d)
	load(t, runtimes)
	host := func(at string, more ...string) []pod.Mount {
		out := []pod.Mount{{HostPath: at, ContainerPath: at}}
		for _, m := range more {
			from, to, _ := strings.Cut(m, ":")
			out = append(out, pod.Mount{HostPath: from, ContainerPath: to})
		}
		return out
	}
	const astray, place = "led the runtime astray", "a volume is mounted at"
	for name, c := range map[string]struct {
		fill       func(t *testing.T, dir string)
		at         []string    // container paths of the volume
		mounts     []pod.Mount // of the machine
		tty        bool
		privileged bool
		change     func(p *v1.Pod)
		refused    string
	}{
		"nothing":           {},
		"a terminal":        {tty: true},
		"a read-only root":  {change: func(p *v1.Pod) { p.Spec.Containers[0].SecurityContext.ReadOnlyRootFilesystem = new(true) }},
		"processes of host": {change: func(p *v1.Pod) { p.Spec.HostPID = true }, mounts: host("/dev", "/proc:/host/proc", "/:/host")},
		"network of host":   {change: func(p *v1.Pod) { p.Spec.HostNetwork = true }, mounts: host("/dev/shm", "/sys:/host/sys")},
		"proc of host":      {mounts: host("/sys", "/proc:/host/proc", "/dev:/host/dev")},
		"dev of host":       {mounts: host("/dev")},
		"sysfs of host":     {mounts: host("/sys/fs/cgroup", "/sys/kernel:/sys/kernel")},
		"uptime of host":    {mounts: host("/proc/uptime")},
		"device of host":    {mounts: host("/dev/null", "/dev/full:/dev/full", "/dev/kmsg:/dev/log1")},
		"root of host":      {mounts: []pod.Mount{{HostPath: "/", ContainerPath: "/host", Propagation: v1.MountPropagationHostToContainer}}},
		"below each other":  {at: []string{"/a", "/a/b", "/dev/shm", "/dev/shm/x", "/etc"}},
		"a link elsewhere":  {fill: link("/tmp", "x"), at: []string{"/v", "/v/x/y"}},
		"privileged": {fill: func(t *testing.T, dir string) {
			must(t, unix.Mknod(filepath.Join(dir, "null"), unix.S_IFCHR|0o666, 1<<8|3))
		}, at: []string{"/dev"}, privileged: true},
		"privileged terminal": {fill: func(t *testing.T, dir string) {
			link("pts/ptmx", "ptmx")(t, dir)
			must(t, unix.Mknod(filepath.Join(dir, "null"), unix.S_IFCHR|0o666, 1<<8|3))
		}, at: []string{"/dev"}, privileged: true, tty: true},
		"the root":           {at: []string{"/"}, refused: place},
		"dev":                {at: []string{"/w", "/dev/"}, refused: place},
		"dev/pts":            {at: []string{"/dev/../dev//pts"}, tty: true, refused: place},
		"proc":               {at: []string{"/proc"}, refused: place},
		"sys":                {at: []string{"/sys"}, refused: place},
		"a link to dev":      {fill: link("/dev", "x"), at: []string{"/v", "/v/x"}, refused: astray},
		"a link to dev, tty": {fill: link("/dev", "x"), at: []string{"/v", "/v/x"}, tty: true, refused: "runtime"},
		"a link to dev/pts":  {fill: link("/dev", "x"), at: []string{"/v", "/v/x/pts"}, refused: astray},
		"a link to the root": {fill: link("/", "x"), at: []string{"/v", "/v/x"}, refused: "runtime"},
		"a link to sys":      {fill: link("/sys", "x"), at: []string{"/v", "/v/x"}, refused: astray},
		"a link below sys":   {fill: link("/sys/kernel", "x"), at: []string{"/v", "/v/x"}, refused: astray},
		"a link in an image": {at: []string{"/dev/fd/../../../dev/x", "/bin/../dev/y"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, os.Chmod(dir, 0o777))
			if c.fill != nil {
				c.fill(t, dir)
			}
			r := rigOn(t, d, runtimes, "sleep 1000", func(p *v1.Pod) {
				p.Name += strings.NewReplacer(" ", "-", "/", "-", ",", "").Replace(name)
				p.Spec.Containers[0].TTY = c.tty
				p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{Privileged: &c.privileged}
				for _, at := range c.at {
					p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: "v", MountPath: at})
				}
				if c.change != nil {
					c.change(p)
				}
			})
			r.start.Mounts = append(r.start.Mounts, c.mounts...)
			for _, at := range c.at {
				r.start.Mounts = append(r.start.Mounts, pod.Mount{HostPath: dir, ContainerPath: at})
			}
			err := r.StartContainer(t.Context(), r.start)
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("got %v, want %q", err, c.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			id := find(t, r.Runtime, r.key, "main", 0).ID
			code, err := r.Exec(t.Context(), id, []string{"cat", "/proc/self/mountinfo"}, runtime.ExecIO{Stdout: &out})
			if err != nil || code != 0 || !strings.Contains(out.String(), " /proc ") {
				t.Errorf("exec: %d, %v: %s", code, err, out.String())
			}
		})
	}
}

// TestMountsRaced: a volume's name leads to /dev at one moment and not at the next, while runc mounts.
func TestMountsRaced(t *testing.T) {
	r := newRig(t, daemontest.Embedded(t), "sleep 1000")
	dir := t.TempDir()
	x, y := filepath.Join(dir, "x"), filepath.Join(dir, "y")
	must(t, os.Mkdir(x, 0o755))
	must(t, os.Symlink("/dev", y))
	r.start.Mounts = append(r.start.Mounts,
		pod.Mount{HostPath: dir, ContainerPath: "/v"}, pod.Mount{HostPath: t.TempDir(), ContainerPath: "/v/x"})
	stop, stopped := make(chan struct{}), make(chan error)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			case <-time.After(time.Millisecond):
			}
			if err := unix.Renameat2(unix.AT_FDCWD, x, unix.AT_FDCWD, y, unix.RENAME_EXCHANGE); err != nil {
				<-stop
				stopped <- err
				return
			}
		}
	}()
	started := 0
	for range 20 {
		err := r.StartContainer(t.Context(), r.start)
		r.start.Attempt++
		if err != nil {
			continue
		}
		started++
		var out bytes.Buffer
		id := find(t, r.Runtime, r.key, "main", r.start.Attempt-1).ID
		if code, err := r.Exec(t.Context(), id, []string{"cat", "/proc/self/mountinfo"}, runtime.ExecIO{Stdout: &out}); err != nil || code != 0 {
			t.Fatal(code, err)
		}
		mounts, err := mountinfo.GetMountsFromReader(&out, nil)
		must(t, err)
		for _, m := range mounts {
			if strings.HasPrefix(m.Mountpoint, "/dev") && strings.Contains(m.Root, t.Name()) {
				t.Errorf("%s is at %s", m.Root, m.Mountpoint)
			}
		}
	}
	close(stop)
	must(t, <-stopped)
	t.Logf("%d of 20 started", started)
}
