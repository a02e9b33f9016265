package exec

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"google.golang.org/grpc"

	"podrun.io/podrun/internal/runtime/containerd/daemon"
)

// errStart is how every start of failingTasks fails.
var errStart = errors.New("its cgroup is gone")

type failingTasks struct{ tasks.TasksClient }

func (failingTasks) Start(context.Context, *tasks.StartRequest, ...grpc.CallOption) (*tasks.StartResponse, error) {
	return nil, errStart
}

// written is a process that has written something already.
type written struct {
	client.Process
	streams
}

func (*written) ID() string   { return "exec" }
func (w *written) IO() cio.IO { return &w.streams }
func (*written) Wait(context.Context) (<-chan client.ExitStatus, error) {
	return nil, errors.New("not waited for")
}

func (s *streams) Close() error { return nil }

// TestFailedStartAfterOutput: a command whose start is reported as failed after it has written something ends with that
// error, although no output is passed on before the start has succeeded.
func TestFailedStartAfterOutput(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, err := client.New("", client.WithServices(client.WithTaskClient(failingTasks{})))
		if err != nil {
			t.Fatal(err)
		}
		x := &Execer{client: &daemon.Client{Client: c}}
		owned := make(chan struct{})
		var out bytes.Buffer
		p := &written{}
		p.ctx, p.Cut = context.WithCancel(t.Context())
		p.copying.Go(func() { _, _ = (&gated{&out, owned}).Write([]byte("here")) })
		synctest.Wait()
		if out.Len() > 0 {
			t.Errorf("before the start: %s", &out)
		}
		_, err = x.follow(t.Context(), command{id: "c", process: p, owned: func() { close(owned) }})
		if !errors.Is(err, errStart) {
			t.Errorf("error %v", err)
		}
		if out.String() != "here" {
			t.Errorf("output %q", &out)
		}
	})
}
