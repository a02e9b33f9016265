package runcshim

import (
	"context"
	"runtime/debug"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
)

// trimAfter is how long after the last start of a container the memory that the start needed is
// returned to the system.
const trimAfter = 10 * time.Second

// trimming is a task service that returns memory to the system when containers have been started.
// Nothing else needs much, and collecting garbage costs more than what an idle shim does in a day.
type trimming struct {
	task.TTRPCTaskService
	timer *time.Timer
}

func newTrimming(service task.TTRPCTaskService) trimming {
	timer := time.AfterFunc(trimAfter, debug.FreeOSMemory)
	return trimming{TTRPCTaskService: service, timer: timer}
}

// Start starts a container or an additional process in one.
func (t trimming) Start(ctx context.Context, r *task.StartRequest) (*task.StartResponse, error) {
	if r.ExecID == "" {
		t.timer.Reset(trimAfter)
	}
	return t.TTRPCTaskService.Start(ctx, r)
}
