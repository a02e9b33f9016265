package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/test/testcontainerd"
)

// A log that grows over many files is read as one, while it grows and after, whatever becomes of podrun.
func TestLogRotates(t *testing.T) {
	n := newNode(t)
	rotating := []string{"--container-log-max-size=32Ki", "--container-log-max-files=60"}
	n.write("a.yaml", manifest("a", "Never", "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); [ $((i%500)) = 0 ] && sleep 0.03; done"))
	n.serve(rotating...)
	n.await("the log", func() error {
		if r := n.run("logs", "a"); !strings.HasPrefix(r.stdout, "line 0\n") {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	followed := make(chan result, 1)
	go func() { followed <- outcome(t, n.command(ctx, "logs", "-f", "a"), "") }()
	time.Sleep(300 * time.Millisecond) // anywhere in between
	n.end(syscall.SIGKILL)
	n.serve(rotating...)
	r := <-followed
	if lines, err := whole(r.stdout); err != nil || lines != 20000 {
		t.Errorf("logs -f: %d lines, %v; exit %d: %s", lines, err, r.code, r.stderr)
	}
	if lines, err := whole(n.ok("logs", "a")); err != nil || lines != 20000 {
		t.Errorf("logs: %d lines, %v", lines, err)
	}
	if got := n.ok("logs", "--tail=5000", "a"); strings.Count(got, "\n") != 5000 || !strings.HasPrefix(got, "line 15000\n") {
		t.Errorf("logs --tail: %d lines from %.20q", strings.Count(got, "\n"), got)
	}
	n.await("old files to be compressed", func() error {
		files, err := filepath.Glob(n.path("log", "*", "c", "0.log*"))
		packed := slices.DeleteFunc(slices.Clone(files), func(f string) bool { return !strings.HasSuffix(f, ".gz") })
		if err == nil && (len(files) < 10 || len(packed) != len(files)-2) {
			err = fmt.Errorf("%v", files)
		}
		return err
	})
}

// Logs of a pod that is gone stay for as long as they are to, and go then; those of others, and of what is there, do not.
func TestLogsOfPodsThatAreGone(t *testing.T) {
	n := newNode(t)
	n.write("a.yaml", manifest("a", "Always", "echo said; "+forever))
	n.write("b.yaml", manifest("b", "Always", "echo said; "+forever))
	n.serve("--pod-log-retention=1h")
	logsOf := func(name string) string {
		return n.path("log", fmt.Sprintf("default_%s_%s", name, n.ready(name).UID), "c", "0.log")
	}
	a, b := logsOf("a-n"), logsOf("b-n")
	foreign := n.path("log", "kube-system_etcd_u1", "etcd", "0.log") // the kubelet's
	must(t, os.MkdirAll(filepath.Dir(foreign), 0o755))
	must(t, os.WriteFile(foreign, nil, 0o640))
	written := func(file string) {
		n.await(file, func() error {
			text, err := os.ReadFile(file)
			if err == nil && !strings.HasSuffix(string(text), " said\n") {
				err = fmt.Errorf("%q", text)
			}
			return err
		})
	}
	written(a)
	n.remove("a.yaml")
	n.gone("a-n")
	written(a)
	n.end(syscall.SIGTERM)
	n.serve("--pod-log-retention=1ms")
	n.await("the logs of a pod that is gone to go", func() error {
		if _, err := os.Stat(filepath.Dir(filepath.Dir(a))); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s: %w", a, err)
		}
		return nil
	})
	written(b)
	if _, err := os.Stat(foreign); err != nil {
		t.Error(err)
	}
	must(t, os.RemoveAll(filepath.Dir(filepath.Dir(foreign))))
}

// smallDisk is a disk of its own, for as long as the test runs.
func smallDisk(t *testing.T, megabytes int) (disk string) {
	t.Helper()
	if !wanted() {
		t.Skip("end-to-end tests run as root by make e2e (PODRUN_E2E=1)")
	}
	disk, err := os.MkdirTemp("", "pd")
	must(t, err)
	t.Cleanup(func() { must(t, errors.Join(syscall.Unmount(disk, 0), os.Remove(disk))) })
	must(t, syscall.Mount("podrun", disk, "tmpfs", 0, fmt.Sprintf("size=%dm", megabytes)))
	return disk
}

// smallNode is a node whose root directory and logs are on a small disk of their own.
func smallNode(t *testing.T, megabytes int) (n *node, disk string) {
	t.Helper()
	disk = smallDisk(t, megabytes)
	n = bareNode(t)
	n.flags[0], n.flags[2] = "--root-dir="+filepath.Join(disk, "root"), "--log-dir="+filepath.Join(disk, "log")
	n.ok("images", "load", setup.image)
	return n, disk
}

// TestImagesGoFromAFullDisk: at the threshold the least recently used images go, as many as it takes; those that a
// pod has, or that a manifest names, do not.
func TestImagesGoFromAFullDisk(t *testing.T) {
	disk := smallDisk(t, 140) // images, and what podrun has in its root directory, take two thirds
	if setup.server != nil {  // images are where containerd is
		dir := filepath.Join(disk, "c")
		must(t, os.Mkdir(dir, 0o755))
		server, err := testcontainerd.Start(context.Background(), setup.bin, dir)
		must(t, err)
		t.Cleanup(func() { must(t, server.Stop()) })
		n := bareNode(t)
		n.flags[3] = "--containerd-address=" + server.Address
		imagesGo(n, disk)
		return
	}
	n := bareNode(t)
	n.flags[0] = "--root-dir=" + filepath.Join(disk, "root")
	imagesGo(n, disk)
}

func imagesGo(n *node, disk string) {
	t := n.t
	n.ok("images", "load", setup.image)
	ref := func(name string) string { return "podrun.example/" + name + ":1" }
	for _, short := range []string{"once-used", "older", "newer", "wanted"} {
		image, _ := bigImage(t, 6<<20)
		tag, err := name.NewTag(ref(short))
		must(t, err)
		must(t, tarball.WriteToFile(n.path(short+".tar"), tag, image))
		n.ok("images", "load", n.path(short+".tar"))
	}
	n.write("uses.yaml", manifest("uses", "Always", forever))
	n.write("job.yaml", strings.Replace(manifest("job", "Always", forever), box, ref("once-used"), 1))
	n.write("waits.yaml", strings.Replace(strings.Replace(manifest("waits", "Always", forever), box, ref("wanted"), 1),
		"metadata:\n", "metadata:\n  annotations: {podrun.io/after: nobody}\n", 1))
	n.serve("--image-gc-high-threshold=80", "--image-gc-low-threshold=75", "--image-minimum-gc-age=0s", "--disk-pressure-threshold=0")
	n.ready("uses-n")
	n.ready("job-n")
	n.remove("job.yaml")
	n.gone("job-n")

	// fill takes the disk to just above the threshold and has podrun look.
	fillings := 0
	fill := func() {
		t.Helper()
		fillings++
		var now syscall.Statfs_t
		must(t, syscall.Statfs(disk, &now))
		used := (now.Blocks - now.Bfree) * uint64(now.Bsize)
		more := now.Blocks*uint64(now.Bsize)*81/100 + 1<<20
		if more < used {
			t.Fatalf("%d bytes of %d are taken", used, now.Blocks*uint64(now.Bsize))
		}
		must(t, os.WriteFile(filepath.Join(disk, fmt.Sprint("filler", fillings)), make([]byte, more-used), 0o600))
		n.write("bell.yaml", fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bell}\ndata: {n: \"%d\"}\n", fillings))
	}
	there := func() (names []string) {
		for line := range strings.Lines(n.ok("images", "list")) {
			if name, ok := strings.CutPrefix(line, "podrun.example/"); ok {
				name, _, _ = strings.Cut(name, ":")
				names = append(names, name)
			}
		}
		return names
	}
	for _, want := range [][]string{
		{"box", "newer", "once-used", "wanted"}, {"box", "once-used", "wanted"}, {"box", "wanted"},
	} {
		fill()
		n.await(fmt.Sprintf("%v to be left", want), func() error {
			if got := there(); !slices.Equal(got, want) {
				return fmt.Errorf("there are %v", got)
			}
			return nil
		})
	}
	fill()
	n.said("there is no unused image to remove")
	if got := there(); !slices.Equal(got, []string{"box", "wanted"}) {
		t.Errorf("what may not go went: %v", got)
	}
	if p := n.ready("uses-n"); p.Status.ContainerStatuses[0].RestartCount != 0 || n.pod("waits-n").Status.Phase != v1.PodPending {
		t.Errorf("%s", asJSON(p.Status))
	}
	for i := range fillings {
		must(t, os.Remove(filepath.Join(disk, fmt.Sprint("filler", i+1))))
	}
}

// A disk without any space costs no pod, and all goes on by itself when there is some again.
func TestFullDisk(t *testing.T) {
	n, disk := smallNode(t, 100)
	n.write("writes.yaml", manifest("writes", "Always", "i=0; while :; do echo line $i; i=$((i+1)); [ $((i%20)) = 0 ] && sleep 0.01; done"))
	n.write("dies.yaml", manifest("dies", "Always", forever))
	n.serve()
	writes, dies := n.ready("writes-n"), n.ready("dies-n")
	pid := n.mainPID(writes, "c")
	victim := n.mainPID(dies, "c")

	filler, err := os.Create(filepath.Join(disk, "filler"))
	must(t, err)
	for block := 1 << 20; block > 0; block /= 2 { // to the last byte
		for err = nil; err == nil; _, err = filler.Write(make([]byte, block)) {
		}
	}
	must(t, filler.Close())
	n.said("a disk is nearly full")
	// Who meets the end of the disk first is the shim, or podrun where it has something to write by then.
	n.await("a log to suffer", func() error {
		said, err := os.ReadFile(n.log.Name())
		if err == nil && !strings.Contains(string(said), "cannot write a container's log") && !strings.Contains(string(said), "the shim has given up a container's output") {
			err = errors.New(string(said))
		}
		return err
	})
	if setup.server == nil { // podrun's own containerd; another one has its temporary files where it wants
		if got := n.ok("exec", "writes", "--", "echo", "within"); got != "within\n" {
			t.Errorf("exec on a full disk: %q", got)
		}
	}
	must(t, syscall.Kill(victim, syscall.SIGKILL))
	time.Sleep(2 * time.Second) // it cannot be restarted meanwhile, or it can
	for _, path := range []string{"/readyz", "/metrics"} {
		text := n.http(path)
		if path == "/readyz" && !strings.Contains(text, "[-]disk failed: ") || path == "/metrics" && !strings.Contains(text, `podrun_disk_pressure{disk="nodefs"} 1`) {
			t.Errorf("%s on a full disk: %s", path, text)
		}
	}

	must(t, os.Remove(filler.Name()))
	n.said("a disk has space again")
	n.restarted("dies-n", 1)
	if p := n.ready("writes-n"); n.mainPID(p, "c") != pid || p.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the pod that wrote was restarted: %s", asJSON(p.Status.ContainerStatuses))
	}
	n.said("podrun copies it now")
	// Its output comes on: it does not hang for want of a reader.
	last := func() (number int) {
		_, err := fmt.Sscanf(n.ok("logs", "--tail=1", "writes"), "line %d", &number)
		must(t, err)
		return number
	}
	before := last()
	n.await("new output", func() error {
		if now := last(); now < before+5000 {
			return fmt.Errorf("line %d, before %d", now, before)
		}
		return nil
	})
}

// http asks serve over its socket.
func (n *node) http(path string) string {
	n.t.Helper()
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", n.path("run", "podrun.sock"))
	}}}
	answer, err := client.Get("http://podrun" + path)
	must(n.t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(n.t, err)
	return string(text)
}

// TestRemovedFromADiskThatItFills: a pod whose volume has filled the disk, so that nothing can be recorded, is removed with
// its manifest, and the disk has space again.
func TestRemovedFromADiskThatItFills(t *testing.T) {
	n, disk := smallNode(t, 100)
	n.write("fills.yaml", inContainer(manifest("fills", "Always", "cat /dev/zero >/d/fill; "+forever,
		"volumes: [{name: d, emptyDir: {}}]"), "volumeMounts: [{name: d, mountPath: /d}]"))
	n.serve()
	free := func(is func(bytes uint64) bool) func() error {
		return func() error {
			var st syscall.Statfs_t
			if err := syscall.Statfs(disk, &st); err != nil || is(st.Bavail*uint64(st.Bsize)) {
				return err
			}
			return fmt.Errorf("%d blocks are free", st.Bavail)
		}
	}
	n.await("the disk to be full", free(func(bytes uint64) bool { return bytes == 0 }))
	n.remove("fills.yaml")
	n.gone("fills-n")
	n.await("the disk to have space", free(func(bytes uint64) bool { return bytes > 20<<20 }))
}
