package containerd_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd"
	"podrun.io/podrun/internal/testimage"
)

// archive is a busybox image's archive.
func archive(t *testing.T, ref string, opts ...testimage.Option) string {
	t.Helper()
	path, err := testimage.Busybox(t.TempDir(), ref, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func loadFile(t *testing.T, r *containerd.Runtime, path string) []string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	names, err := r.Load(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestLoadAndResolve(t *testing.T) {
	for name, start := range daemons {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := connect(t, start(t))
			for _, opts := range [][]testimage.Option{nil, {testimage.DockerArchive()}} {
				got := loadFile(t, r, archive(t, "busybox:1", opts...))
				if !slices.Equal(got, []string{"docker.io/library/busybox:1"}) {
					t.Errorf("%q", got)
				}
				first, err := r.Resolve(t.Context(), "busybox:1")
				if err != nil || first.Name != "docker.io/library/busybox:1" || !strings.HasPrefix(first.ID, "docker.io/library/busybox@sha256:") {
					t.Errorf("%+v, %v", first, err)
				}
				for _, ref := range []string{"docker.io/library/busybox:1", "library/busybox:1", "docker.io/busybox:1"} {
					if i, err := r.Resolve(t.Context(), ref); err != nil || i != first {
						t.Errorf("%s: %+v, %v", ref, i, err)
					}
				}
			}
			loaded, err := r.Resolve(t.Context(), "busybox:1")
			if err != nil {
				t.Fatal(err)
			}
			_, digest, _ := strings.Cut(loaded.ID, "@")
			if got, err := r.Resolve(t.Context(), "busybox:9@"+digest); err != nil || got != loaded {
				t.Errorf("by digest: %+v, %v", got, err)
			}
			for _, ref := range []string{"busybox", "busybox:2", "other:1", "Not A Name", "other@" + digest, "busybox@sha256:" + strings.Repeat("0", 64)} {
				if _, err := r.Resolve(t.Context(), ref); !errors.Is(err, runtime.ErrNotFound) {
					t.Errorf("%s: %v", ref, err)
				}
			}
			if _, err := r.Load(t.Context(), strings.NewReader("no archive")); err == nil {
				t.Error("garbage was loaded")
			}
		})
	}
}

// TestResolveShortName: another tool has loaded an archive under the name as it was written.
func TestResolveShortName(t *testing.T) {
	d := embeddedDaemon(t)
	r := connect(t, d)
	loadFile(t, r, archive(t, "busybox:1"))
	ctx, c := raw(t, d)
	i, err := c.ImageService().Get(ctx, "docker.io/library/busybox:1")
	if err != nil {
		t.Fatal(err)
	}
	i.Name = "short:1"
	if _, err := c.ImageService().Create(ctx, i); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Resolve(t.Context(), "short:1"); err != nil || got.Name != "short:1" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestPull(t *testing.T) {
	for name, start := range daemons {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
			defer server.Close()
			ref := strings.TrimPrefix(server.URL, "http://") + "/test/busybox:1"
			d := start(t)
			r := connect(t, d)
			digest := push(t, d, r, ref)
			if _, err := r.Resolve(t.Context(), ref); !errors.Is(err, runtime.ErrNotFound) {
				t.Fatalf("before the pull: %v", err)
			}
			pulled, err := r.Pull(t.Context(), ref)
			if err != nil {
				t.Fatal(err)
			}
			if want := strings.TrimSuffix(ref, ":1") + "@" + digest; pulled.Name != ref || pulled.ID != want {
				t.Errorf("%+v, want %s", pulled, want)
			}
			if got, err := r.Resolve(t.Context(), ref); err != nil || got != pulled {
				t.Errorf("%+v, %v", got, err)
			}
			for bad, reason := range map[string]string{
				strings.Replace(ref, ":1", ":2", 1): "ErrImagePull", "Not A Name": "InvalidImageName", "127.0.0.1:1/none:1": "ErrImagePull",
			} {
				var why *runtime.ReasonError
				if _, err := r.Pull(t.Context(), bad); !errors.As(err, &why) || why.Reason != reason || !strings.Contains(err.Error(), bad) {
					t.Errorf("%s: %v", bad, err)
				}
			}
		})
	}
}

// push puts an image into the registry, by way of d but not left there, and returns its digest.
func push(t *testing.T, d daemon, r *containerd.Runtime, ref string, opts ...testimage.Option) string {
	t.Helper()
	loadFile(t, r, archive(t, ref, opts...))
	ctx, c := raw(t, d)
	i, err := c.ImageService().Get(ctx, ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Push(ctx, ref, i.Target); err != nil {
		t.Fatal(err)
	}
	if removed, err := r.PruneImages(t.Context()); err != nil || len(removed) != 1 {
		t.Fatalf("%q, %v", removed, err)
	}
	return i.Target.Digest.String()
}

func TestPruneImages(t *testing.T) {
	r := newRig(t, embeddedDaemon(t), "sleep 1000")
	loadFile(t, r.Runtime, archive(t, "unused:1", testimage.Env("A=b")))
	r.run(t)
	all, err := r.ListImages(t.Context())
	if err != nil || len(all) != 2 || all[0].Name != "docker.io/library/unused:1" || all[0].Used || !all[1].Used || all[1].Size == 0 || all[1].CreatedAt.IsZero() {
		t.Errorf("%+v, %v", all, err)
	}
	removed, err := r.PruneImages(t.Context())
	if err != nil || !slices.Equal(removed, []string{"docker.io/library/unused:1"}) {
		t.Errorf("%q, %v", removed, err)
	}
	clear(t, r.Runtime)
	pin := func(with string) {
		t.Helper()
		ctx, c := raw(t, r.daemon)
		i, err := c.ImageService().Get(ctx, imageRef)
		if err == nil {
			i.Labels["io.cri-containerd.pinned"] = with
			_, err = c.ImageService().Update(ctx, i, "labels")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	pin("pinned")
	if removed, err := r.PruneImages(t.Context()); err != nil || len(removed) > 0 {
		t.Errorf("a pinned image was removed: %q, %v", removed, err)
	}
	pin("")
	if removed, err := r.PruneImages(t.Context()); err != nil || !slices.Equal(removed, []string{imageRef}) {
		t.Errorf("%q, %v", removed, err)
	}
	// Loaded again, it must be unpacked again, whatever is remembered of it.
	load(t, r.Runtime)
	again := rigOn(t, r.daemon, r.Runtime, "sleep 1000")
	again.run(t)
}

// TestImageConfig: what an image says of the process holds where the manifest says nothing.
func TestImageConfig(t *testing.T) {
	d := embeddedDaemon(t)
	r := connect(t, d)
	load(t, r, testimage.User("worker:crew"), testimage.Env("FROM=image"), testimage.WorkingDir("/work"), testimage.StopSignal("10"),
		testimage.File("/etc/passwd", 0o644, []byte("root:x:0:0::/:\nworker:x:1234:1234::/:\n")),
		testimage.File("/etc/group", 0o644, []byte("root:x:0:\ncrew:x:77:\nhelpers:x:88:worker\n")),
		testimage.Entrypoint("sh", "-c"), testimage.Cmd(`trap 'exit 5' USR1; while :; do sleep 0.02; done`))
	rig := rigOn(t, d, r, "", func(p *v1.Pod) { p.Spec.Containers[0].Command = nil })
	c := rig.run(t)
	if c.StopSignal != "SIGUSR1" {
		t.Errorf("stop signal %q", c.StopSignal)
	}
	for line, want := range map[string]string{"id -u": "1234", "id -g": "77", "id -G": "77 88", "pwd": "/work", "echo $FROM": "image"} {
		var out bytes.Buffer
		code, err := r.Exec(t.Context(), c.ID, []string{"sh", "-c", line}, runtime.ExecIO{Stdout: &out})
		if err != nil || code != 0 || strings.TrimSpace(out.String()) != want {
			t.Errorf("%s: %q, %d, %v, want %s", line, out.String(), code, err, want)
		}
	}
	eventually(t, "the trap is set", func() bool {
		code, err := r.Exec(t.Context(), c.ID, []string{"sh", "-c", "ps | grep -q ' sleep 0.02$'"}, runtime.ExecIO{})
		return err == nil && code == 0
	})
	if err := r.SignalContainer(t.Context(), c.ID, ""); err != nil {
		t.Fatal(err)
	}
	if c := rig.ended(t, 0); c.ExitCode != 5 {
		t.Errorf("%+v", c)
	}
}

func TestUserThatIsNotThere(t *testing.T) {
	r := connect(t, embeddedDaemon(t))
	f, err := os.Open(archive(t, "busybox:1", testimage.User("stranger")))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := r.Load(t.Context(), f); err == nil || !strings.Contains(err.Error(), `"stranger"`) {
		t.Errorf("error %v", err)
	}
}

// TestVolumeOfAnImage: an image that a pod has as a volume is in use, and nothing is left of it once the pod's data
// is removed, also when the showing was cut off.
func TestVolumeOfAnImage(t *testing.T) {
	for name, start := range daemons {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := start(t)
			r := connect(t, d)
			load(t, r)
			views := func() (keys []string) {
				ctx, c := raw(t, d)
				err := c.SnapshotService(r.Snapshotter).Walk(ctx, func(_ context.Context, i snapshots.Info) error {
					if i.Kind == snapshots.KindView {
						keys = append(keys, i.Name)
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				return keys
			}
			i, err := r.Resolve(t.Context(), imageRef)
			if err != nil {
				t.Fatal(err)
			}
			p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-node", UID: pod.UID(rand.Text())}}
			if err := r.SavePod(p, "serve"); err != nil {
				t.Fatal(err)
			}
			// Something goes wrong in between.
			dir := d.dirs.Volume(p.UID, layout.KindImage, "v")
			if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Dir(dir)), 0o755), os.WriteFile(filepath.Dir(dir), nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Show(t.Context(), i, p.UID, "v"); err == nil || len(views()) > 0 {
				t.Errorf("%v; left: %q", err, views())
			}
			if err := os.Remove(filepath.Dir(dir)); err != nil {
				t.Fatal(err)
			}

			shown, err := r.Show(t.Context(), i, p.UID, "v")
			if _, missing := os.Stat(filepath.Join(shown, "bin", "busybox")); err != nil || missing != nil {
				t.Fatal(err, missing)
			}
			if removed, err := r.PruneImages(t.Context()); err != nil || len(removed) > 0 {
				t.Errorf("an image in use was removed: %q, %v", removed, err)
			}
			if _, err := r.RemoveImage(t.Context(), imageRef, false); !errors.Is(err, containerd.ErrImageUsed) {
				t.Errorf("got %v", err)
			}
			if err := r.RemoveData(t.Context(), pod.KeyOf(p), p.UID); err != nil || len(views()) > 0 {
				t.Errorf("%v; left: %q", err, views())
			}
			if removed, err := r.PruneImages(t.Context()); err != nil || len(removed) != 1 {
				t.Errorf("%q, %v", removed, err)
			}
		})
	}
}
