package containerd_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/snapshots"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemontest"
	"podrun.io/podrun/internal/runtime/containerd/images"
	"podrun.io/podrun/internal/test/testimage"
)

func TestPruneImages(t *testing.T) {
	r := newRig(t, daemontest.Embedded(t), "sleep 1000")
	daemontest.Load(t, r.Runtime, daemontest.Archive(t, "unused:1", testimage.Env("A=b")))
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
		ctx, c := r.daemon.Client(t)
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

// TestImageConfig checks that the image's process configuration applies where the manifest sets
// nothing.
func TestImageConfig(t *testing.T) {
	d := daemontest.Embedded(t)
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
	daemontest.Eventually(t, "the trap is set", func() bool {
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

// TestUserOfNoAccount: an image whose USER its files do not have runs as another user, and otherwise the start fails and
// says why.
func TestUserOfNoAccount(t *testing.T) {
	d := daemontest.Embedded(t)
	r := connect(t, d)
	load(t, r, testimage.User("stranger"))
	rig := rigOn(t, d, r, "sleep 1000")
	err := r.StartContainer(t.Context(), rig.start)
	if err == nil || !strings.Contains(err.Error(), `no user "stranger"`) {
		t.Errorf("as the image's user: %v", err)
	}
	rig.start.Pod.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: new(int64(1000))}
	rig.run(t)
}

// TestVolumeOfAnImage checks that an image that is a volume of a pod is in use, and that nothing of
// the volume is left after the pod's data is removed, even if mounting it was interrupted.
func TestVolumeOfAnImage(t *testing.T) {
	for name, start := range daemontest.Kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := start(t)
			r := connect(t, d)
			load(t, r)
			views := func() (keys []string) {
				ctx, c := d.Client(t)
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
			dir := d.Dirs.Revision(p.UID).Volume(layout.KindImage, "v")
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
			if _, err := r.RemoveImage(t.Context(), imageRef, false); !errors.Is(err, images.ErrUsed) {
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

func TestSaveAndRemoveImages(t *testing.T) {
	r := newRig(t, daemontest.Embedded(t), "sleep 1000")
	r.run(t)
	daemontest.Load(t, r.Runtime, daemontest.Archive(t, "other:1", testimage.Env("A=b")))
	file := filepath.Join(t.TempDir(), "saved.tar")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.Save(t.Context(), []string{"other:1", imageRef}, f), f.Close()); err != nil {
		t.Fatal(err)
	}
	if err := r.Save(t.Context(), []string{"none:1"}, io.Discard); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("saving nothing: %v", err)
	}
	digest, err := r.Resolve(t.Context(), "other:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Save(t.Context(), []string{digest.ID}, io.Discard); err != nil {
		t.Errorf("by its digest: %v", err)
	}
	if name, err := r.RemoveImage(t.Context(), digest.ID, false); err != nil || name != "docker.io/library/other:1" {
		t.Errorf("%q, %v", name, err)
	}
	if _, err := r.RemoveImage(t.Context(), "other:1", false); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("again: %v", err)
	}
	if _, err := r.RemoveImage(t.Context(), imageRef, false); !errors.Is(err, images.ErrUsed) {
		t.Errorf("one that is used: %v", err)
	}
	daemontest.Load(t, r.Runtime, daemontest.Archive(t, "second:1"))
	if name, err := r.RemoveImage(t.Context(), "second:1", false); err != nil || name != "docker.io/library/second:1" {
		t.Errorf("another name of one that is used: %q, %v", name, err)
	}
	if _, err := r.RemoveImage(t.Context(), imageRef, false); !errors.Is(err, images.ErrUsed) {
		t.Errorf("the last name of one that is used: %v", err)
	}
	if _, err := r.RemoveImage(t.Context(), imageRef, true); err != nil {
		t.Error(err)
	}
	if names := daemontest.Load(t, r.Runtime, file); len(names) != 2 || names[0] != "docker.io/library/other:1" {
		t.Errorf("loaded again: %q", names)
	}
	if _, err := r.Resolve(t.Context(), "other:1"); err != nil {
		t.Error(err)
	}
}
