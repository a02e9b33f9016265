package nodeinfo

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/server"
)

func TestRunOf(t *testing.T) {
	t.Parallel()
	ended := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: "containerd://before"}}
	running, waiting := v1.ContainerState{Running: &v1.ContainerStateRunning{}}, v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}
	for name, c := range map[string]struct {
		state, last v1.ContainerState
		previous    bool
		run         string
		id          string
		attempt     int
		err         error
	}{
		"runs":                       {state: running, id: "now", attempt: 2},
		"runs again, the run before": {state: running, last: ended, previous: true, id: "before", attempt: 1},
		"runs, no run before":        {state: running, previous: true, err: server.ErrNotFound},
		"waits for a restart":        {state: waiting, last: ended, id: "now", attempt: 2},
		"waits for its first run":    {state: waiting, err: server.ErrNotYet},
		"the newest by its ID":       {state: running, last: ended, run: "containerd://now", id: "now", attempt: 2},
		"the one before by its ID":   {state: running, last: ended, run: "containerd://before", id: "before", attempt: 1},
		"one that is gone":           {state: running, last: ended, run: "containerd://older", err: server.ErrNotFound},
		"one before the first":       {state: running, run: "containerd://older", err: server.ErrNotFound},
		"waits, the run before":      {state: waiting, last: ended, previous: true, id: "now", attempt: 2},
	} {
		p := &v1.Pod{Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{
			{Name: "c", ContainerID: "containerd://now", RestartCount: 2, State: c.state, LastTerminationState: c.last},
		}}}
		inst, err := runOf(p, server.LogRequest{Container: "c", Previous: c.previous, Run: c.run})
		if !errors.Is(err, c.err) || c.err == nil && (err != nil || inst.ID != c.id || inst.Attempt != c.attempt) {
			t.Errorf("%s: %+v, %v", name, inst, err)
		}
		if _, err := runOf(p, server.LogRequest{Container: "other"}); !errors.Is(err, server.ErrNotFound) {
			t.Errorf("another container: %v", err)
		}
	}
}
