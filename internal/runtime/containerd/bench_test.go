package containerd_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	osexec "os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd"
	"podrun.io/podrun/internal/runtime/containerd/daemontest"
	"podrun.io/podrun/internal/test/usage"
)

// BenchmarkStart measures the start of a container, from nothing to a running process, with the
// image unpacked: with containerd's client alone and a shim per container (floor), as the first
// container of a pod, and as a further one.
func BenchmarkStart(b *testing.B) {
	d := daemontest.Embedded(b)
	r := connect(b, d)
	load(b, r)
	b.Run("floor", func(b *testing.B) { benchFloor(b, d) })
	b.Run("first", func(b *testing.B) {
		for i := range b.N {
			b.StopTimer()
			p, start := benchPod(b, r, fmt.Sprint("first", i))
			b.StartTimer()
			if err := r.StartContainer(b.Context(), start); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			benchClear(b, r, p)
			b.StartTimer()
		}
	})
	b.Run("next", func(b *testing.B) {
		p, start := benchPod(b, r, "next")
		if err := r.StartContainer(b.Context(), start); err != nil {
			b.Fatal(err)
		}
		b.ResetTimer()
		for i := range b.N {
			start.Attempt = i + 1
			if err := r.StartContainer(b.Context(), start); err != nil {
				b.Fatal(err)
			}
		}
		b.StopTimer()
		benchClear(b, r, p)
	})
}

// BenchmarkExec measures a command in a running container, as exec probes run it, by time and by the
// CPU time of all processes of the machine: runc alone (floor), containerd's client alone on a task that
// it has already loaded and without output, and podrun with the command's output.
func BenchmarkExec(b *testing.B) {
	d := daemontest.Embedded(b)
	r := connect(b, d)
	load(b, r)
	p, start := benchPod(b, r, "exec")
	if err := r.StartContainer(b.Context(), start); err != nil {
		b.Fatal(err)
	}
	o, err := r.Inspect(b.Context(), pod.KeyOf(p))
	if err != nil {
		b.Fatal(err)
	}
	id := o.Containers[0].ID
	measured := func(name string, run func(b *testing.B)) {
		b.Run(name, func(b *testing.B) {
			was := cpuOfAll(b)
			run(b)
			b.ReportMetric((cpuOfAll(b)-was).Seconds()*1000/float64(b.N), "cpu-ms/op")
		})
	}
	measured("runc", func(b *testing.B) {
		for range b.N {
			state := filepath.Join(d.Dirs.Runc(), containerd.DefaultNamespace)
			if out, err := osexec.Command("runc", "--root", state, "exec", id, "true").CombinedOutput(); err != nil {
				b.Fatal(err, string(out))
			}
		}
	})
	measured("client", func(b *testing.B) { benchExecFloor(b, d, id) })
	measured("podrun", func(b *testing.B) {
		for range b.N {
			var out bytes.Buffer
			streams := runtime.ExecIO{Stdout: &out, Stderr: &out}
			if code, err := r.Exec(b.Context(), id, []string{"true"}, streams); err != nil || code != 0 {
				b.Fatal(code, err)
			}
		}
	})
	benchClear(b, r, p)
}

// cpuOfAll returns the CPU time that all processes of the machine have used, also those that ended.
func cpuOfAll(b *testing.B) time.Duration {
	used, err := usage.Machine()
	if err != nil {
		b.Fatal(err)
	}
	return used
}

func benchExecFloor(b *testing.B, d daemontest.Daemon, id string) {
	c, err := client.New(d.Address)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	ctx := namespaces.WithNamespace(context.Background(), containerd.DefaultNamespace)
	container, err := c.LoadContainer(ctx, id)
	if err != nil {
		b.Fatal(err)
	}
	spec, err := container.Spec(ctx)
	if err != nil {
		b.Fatal(err)
	}
	task, err := container.Task(ctx, nil)
	if err != nil {
		b.Fatal(err)
	}
	process := *spec.Process
	process.Args = []string{"true"}
	b.ResetTimer()
	for i := range b.N {
		p, err := task.Exec(ctx, fmt.Sprint("floor", i), &process, cio.NullIO)
		if err != nil {
			b.Fatal(err)
		}
		exited, err := p.Wait(ctx)
		if err != nil {
			b.Fatal(err)
		}
		if err := p.Start(ctx); err != nil {
			b.Fatal(err)
		}
		<-exited
		if _, err := p.Delete(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

func benchFloor(b *testing.B, d daemontest.Daemon) {
	c, err := client.New(d.Address)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	ctx := namespaces.WithNamespace(context.Background(), containerd.DefaultNamespace)
	for i := range b.N {
		image, err := c.GetImage(ctx, imageRef)
		if err != nil {
			b.Fatal(err)
		}
		id := fmt.Sprint("floor", i)
		container, err := c.NewContainer(ctx, id, client.WithImage(image), client.WithNewSnapshot(id, image),
			client.WithRuntime(d.Shim, &runcoptions.Options{Root: filepath.Join(d.Dirs.Run, "floor")}),
			client.WithNewSpec(oci.WithImageConfig(image), oci.WithProcessArgs("sleep", "1000")))
		if err != nil {
			b.Fatal(err)
		}
		task, err := container.NewTask(ctx, cio.NullIO)
		if err != nil {
			b.Fatal(err)
		}
		if err := task.Start(ctx); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if _, err := task.Delete(ctx, client.WithProcessKill); err != nil {
			b.Fatal(err)
		}
		if err := container.Delete(ctx, client.WithSnapshotCleanup); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func benchPod(b *testing.B, r *Runtime, name string) (*v1.Pod, runtime.Start) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: pod.UID(name + rand.Text())}}
	p.Spec.Containers = []v1.Container{{Name: "main", Image: imageRef, Command: []string{"sleep", "1000"}}}
	if err := r.SavePod(p, "serve"); err != nil {
		b.Fatal(err)
	}
	if err := r.CreateSandbox(b.Context(), p, 0); err != nil {
		b.Fatal(err)
	}
	o, err := r.Inspect(b.Context(), pod.KeyOf(p))
	if err != nil {
		b.Fatal(err)
	}
	image, err := r.Resolve(b.Context(), imageRef)
	if err != nil {
		b.Fatal(err)
	}
	return p, runtime.Start{Pod: p, Container: &p.Spec.Containers[0], Sandbox: o.Sandboxes[0], Image: image}
}

func benchClear(b *testing.B, r *Runtime, p *v1.Pod) {
	o, err := r.Inspect(b.Context(), pod.KeyOf(p))
	if err != nil {
		b.Fatal(err)
	}
	clearPod(b, r, o)
}
