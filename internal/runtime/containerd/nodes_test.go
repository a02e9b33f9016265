package containerd_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemontest"
	"podrun.io/podrun/internal/test/testimage"
)

// TestNodesLedAstray: the container has its devices, and no node of one is anywhere else, wherever the paths lead: not in
// a volume, nor in a plugin's directory.
func TestNodesLedAstray(t *testing.T) {
	d := daemontest.Embedded(t)
	p := &plugin{dir: t.TempDir()}
	runtimes := connectWith(t, d, options(t, d), p)
	load(t, runtimes, testimage.Link("/x", "/v"), testimage.File("/opt/file", 0o644, []byte("text")))
	disk := filepath.Join(t.TempDir(), "disk")
	must(t, unix.Mknod(disk, unix.S_IFBLK|0o640, int(unix.Mkdev(7, 250))))
	must(t, os.Chown(disk, 0, 6))
	runcs := []string{"full", "null", "random", "tty", "urandom", "zero"} // they are the same ones for ever
	for name, c := range map[string]struct {
		at       string // of the block device
		node     string // of the plugin's device, and where its mount is
		change   func(p *v1.Pod)
		fill     func(t *testing.T, dir string)
		deeper   string // where another volume is
		shows    string
		refused  string
		dev      bool // the machine's /dev is the container's
		readOnly bool
	}{
		"a link in the image":        {at: "/x/node", shows: "block 0:6 640 7,fa"},
		"in dev":                     {at: "/dev/xvda", shows: "block 0:6 640 7,fa"},
		"read-only root":             {at: "/disks/one", readOnly: true, shows: "block 0:6 640 7,fa"},
		"a file in the image":        {at: "/opt/file", shows: "block 0:6 640 7,fa"},
		"a volume":                   {at: "/v/node", refused: "the devicePath /v/node is in the volume that is mounted at /v"},
		"a plugin's mount":           {at: "/plugged/node", node: "/dev/pdev", refused: "is in the volume that is mounted at /plugged"},
		"a link in a volume":         {at: "/dev/node", fill: link("/dev", "x"), deeper: "/v/x", refused: "runtime"},
		"a link in a volume, outer":  {at: "/tmp/node", fill: link("/tmp", "x"), deeper: "/v/x", shows: "block 0:6 640 7,fa"},
		"a plugin's, in a volume":    {node: "/v/pdev", shows: "char"},
		"a plugin's, by a link":      {node: "/x/pdev", shows: "char"},
		"a plugin's, in its mount":   {node: "/plugged/pdev", refused: "read-only file system"},
		"a plugin's, machine's dev":  {node: "/dev/podrun-test", dev: true, shows: "none"},
		"a plugin's, privileged":     {node: "/v/pdev", change: privileged, shows: "char"},
		"a volume's, for privileged": {at: "/x/node", change: privileged, shows: "block 0:6 640 7,fa"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, other := t.TempDir(), t.TempDir()
			if c.fill != nil {
				c.fill(t, dir)
			}
			p.at = c.node
			r := rigOn(t, d, runtimes, "sleep 1000", func(p *v1.Pod) {
				p.Name += strings.NewReplacer(" ", "-", ",", "", "'", "").Replace(name)
				p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{ReadOnlyRootFilesystem: &c.readOnly}
				if c.node != "" {
					p.Spec.Containers[0].Resources = asking("").Spec.Containers[0].Resources
				}
				if c.change != nil {
					c.change(p)
				}
			})
			r.start.Mounts = append(r.start.Mounts, pod.Mount{HostPath: dir, ContainerPath: "/v"})
			if c.deeper != "" {
				r.start.Mounts = append(r.start.Mounts, pod.Mount{HostPath: other, ContainerPath: c.deeper})
			}
			if c.dev {
				r.start.Mounts = append(r.start.Mounts, pod.Mount{HostPath: "/dev", ContainerPath: "/dev"})
			}
			at := c.node
			if c.at != "" {
				at = c.at
				r.start.Mounts = append(r.start.Mounts, pod.Mount{HostPath: disk, ContainerPath: c.at, Block: true})
			}
			err := r.StartContainer(t.Context(), r.start)
			if (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
				t.Fatalf("got %v, want %q", err, c.refused)
			}
			if err == nil {
				var out bytes.Buffer
				line := `p=` + at + `; if [ -b $p ]; then stat -c 'block %u:%g %a %t,%T' $p; elif [ -c $p ]; then echo x >$p && echo char; else echo none; fi`
				id := find(t, r.Runtime, r.key, "main", 0).ID
				_, err := r.Exec(t.Context(), id, []string{"sh", "-c", line}, runtime.ExecIO{Stdout: &out, Stderr: &out})
				must(t, err)
				if got := strings.TrimSpace(out.String()); got != c.shows {
					t.Errorf("the container has %q, want %q", got, c.shows)
				}
			}
			for _, dir := range []string{dir, other, p.dir, string(d.Dirs.Revision(r.start.Pod.UID))} {
				must(t, filepath.WalkDir(dir, func(at string, e fs.DirEntry, err error) error {
					if err == nil && e.Type()&fs.ModeDevice != 0 && !slices.Contains(runcs, e.Name()) {
						t.Errorf("a node is left: %s", at)
					}
					return err
				}))
			}
			if _, err := os.Lstat("/dev/podrun-test"); err == nil {
				t.Error("something was made in the machine's /dev")
			}
			o, err := r.Inspect(t.Context(), r.key)
			must(t, err)
			clearPod(t, r.Runtime, o)
		})
	}
}

func privileged(p *v1.Pod) {
	p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{Privileged: new(true)}
}
