package testcontainerd

import (
	"context"
	"errors"
	"os"
	"strconv"
	"testing"
	"time"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/moby/sys/mountinfo"

	"podrun.io/podrun/internal/test/testimage"
)

// TestKinds: each kind starts, runs a container with its own shim, works again after a kill, and
// leaves nothing behind.
func TestKinds(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("containers need root")
	}
	for _, kind := range []string{Stock, Debian} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(namespaces.WithNamespace(t.Context(), "test"), 5*time.Minute)
			defer cancel()
			bin, err := Bin(ctx, kind)
			if err != nil {
				t.Fatal(err)
			}
			dir, err := os.MkdirTemp("", "tc")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			s, err := Start(ctx, bin, dir)
			if err != nil {
				t.Fatal(err)
			}
			stopped := false
			stop := func() {
				if !stopped {
					stopped = true
					if err := s.Stop(); err != nil {
						t.Error(err)
					}
				}
			}
			t.Cleanup(stop)
			task := runSleep(ctx, t, s)
			if err := s.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := s.Restart(ctx); err != nil {
				t.Fatal(err)
			}
			stop()
			wait(t, "the container's process to be gone", func() bool {
				_, err := os.Stat(task)
				return errors.Is(err, os.ErrNotExist)
			})
			left, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
			if err != nil || len(left) > 0 {
				t.Errorf("mounts left: %v, %v", left, err)
			}
		})
	}
}

// runSleep runs a container and returns its process's directory in /proc.
func runSleep(ctx context.Context, t *testing.T, s *Server) string {
	t.Helper()
	archive, err := testimage.Busybox(t.TempDir(), "podrun.example/box:1")
	if err != nil {
		t.Fatal(err)
	}
	client, err := containerd.New(s.Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	imported, err := client.Import(ctx, f)
	if err != nil {
		t.Fatal(err)
	}
	if got := imported[0].Name; got != "podrun.example/box:1" {
		t.Errorf("image is called %s", got)
	}
	image := containerd.NewImage(client, imported[0])
	if err := image.Unpack(ctx, ""); err != nil {
		t.Fatal(err)
	}
	c, err := client.NewContainer(ctx, "sleep", containerd.WithNewSnapshot("sleep", image),
		containerd.WithRuntime("io.containerd.runc.v2", &runcoptions.Options{Root: s.path("runc")}),
		containerd.WithNewSpec(oci.WithImageConfig(image), oci.WithProcessArgs("sleep", "1000")))
	if err != nil {
		t.Fatal(err)
	}
	task, err := c.NewTask(ctx, cio.NullIO)
	if err != nil {
		t.Fatal(err)
	}
	if err := task.Start(ctx); err != nil {
		t.Fatal(err)
	}
	return procDir(task.Pid())
}

func procDir(pid uint32) string { return "/proc/" + strconv.Itoa(int(pid)) }

// wait polls until ok.
func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
