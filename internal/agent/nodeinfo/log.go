package nodeinfo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/containerlog"
	"podrun.io/podrun/internal/containerlog/cri"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/server"
)

// Log implements server.Node. It writes the log of a container to out; its standard error to
// want.ErrOut, if there is one.
func (n node) Log(ctx context.Context, want server.LogRequest, out io.Writer) error {
	pods, err := n.Pods()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(pods, func(p v1.Pod) bool { return p.Namespace == want.Namespace && p.Name == want.Pod })
	if i < 0 {
		return fmt.Errorf("pod %s/%s: %w", want.Namespace, want.Pod, server.ErrNotFound)
	}
	inst, err := runOf(&pods[i], want)
	if err != nil {
		return err
	}
	logs := containerlog.Reader{Dirs: n.o.Dirs, Warn: func(err error) {
		n.o.Log.Debug("converting the end of a container log failed; its newest lines may be missing",
			"pod", inst.Key, "container", inst.Container, "err", err)
	}}
	o := cri.ReadOptions{
		Follow: want.Follow, Timestamps: want.Timestamps, Tail: want.Tail, Since: want.Since, CaughtUp: want.CaughtUp,
	}
	o.Omit[cri.Stdout] = want.Stream == v1.LogStreamStderr
	o.Omit[cri.Stderr] = want.Stream == v1.LogStreamStdout
	errOut := out
	if want.ErrOut != nil {
		errOut = want.ErrOut
	}
	err = logs.Read(ctx, inst, o, out, errOut)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the log of run %d of container %q: %w", inst.Attempt, inst.Container, server.ErrNotFound)
	}
	return err
}

// runOf returns the instance whose log is wanted: the one with the ID want.Run or, if that is empty, the newest one of
// the container or, with want.Previous, the one before.
func runOf(p *v1.Pod, want server.LogRequest) (pod.Instance, error) {
	container := want.Container
	all := slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
	i := slices.IndexFunc(all, func(s v1.ContainerStatus) bool { return s.Name == container })
	if i < 0 {
		return pod.Instance{}, fmt.Errorf("container %q in pod %s: %w", container, p.Name, server.ErrNotFound)
	}
	s := all[i]
	// While the container waits for a restart, its newest instance is the last one that exited.
	inst := pod.Instance{
		ID: pod.IDOf(s.ContainerID), Key: pod.KeyOf(p), UID: p.UID, Container: container, Attempt: int(s.RestartCount),
	}
	waiting, last := s.State.Waiting != nil, s.LastTerminationState.Terminated
	previous := want.Previous || want.Run != "" && want.Run != s.ContainerID
	switch {
	case previous && (last == nil || want.Run != "" && want.Run != last.ContainerID):
		return inst, fmt.Errorf("a previous run of container %q in pod %s: %w", container, p.Name, server.ErrNotFound)
	case previous && !waiting:
		inst.ID, inst.Attempt = pod.IDOf(last.ContainerID), inst.Attempt-1
	case waiting && last == nil:
		return inst, fmt.Errorf("container %q in pod %s is %w: %s",
			container, p.Name, server.ErrNotYet, s.State.Waiting.Reason)
	}
	return inst, nil
}
