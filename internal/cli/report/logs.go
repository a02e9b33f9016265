package report

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/containerlog/cri"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status/summary"
)

// Logs prints the logs of the containers of a run at its end.
type Logs struct {
	Out, ErrOut io.Writer
	Dirs        layout.Dirs
	Log         *slog.Logger
}

// Print prints the logs of the selected containers: all, failed or none. For containers that failed or were not
// done, it also prints the reason or the state.
func (l *Logs) Print(r Run, which string) {
	if which == "none" {
		return
	}
	for _, p := range r.Pods {
		for _, role := range summary.Roles(p) {
			if role.Status == nil {
				continue
			}
			problem := r.problemOf(p, role)
			if problem != "" {
				fmt.Fprintf(l.ErrOut, "%s/%s container %s %s\n", p.Namespace, p.Name, role.Status.Name, problem)
			}
			if problem != "" || which == "all" {
				l.printLog(p, *role.Status, which == "all")
			}
		}
	}
}

// problemOf describes how a container failed or, if the pod has no result, the state of the
// container. It returns "" if neither applies or the container never ran.
func (r Run) problemOf(p *v1.Pod, role summary.Role) string {
	s, t := role.Status, role.Status.State.Terminated
	switch {
	// podrun stops sidecars when the pod is done, so their exit code is not a result.
	case t != nil && t.ExitCode != 0 && (!role.Init || !pod.IsSidecar(role.Container)):
		return fmt.Sprintf("failed: %s, exit code %d%s", t.Reason, t.ExitCode, summary.Plain(detail(t.Message)))
	case r.Done(p) || t != nil || s.State.Running == nil && lastExit(*s) == nil:
		return ""
	}
	state := "Running"
	if w := s.State.Waiting; w != nil {
		state = w.Reason
	}
	if last := lastExit(*s); last != nil {
		state += " (" + exitOf(last) + ")"
	}
	return "was not done: " + state
}

// failedTail is the number of lines that printLog prints of the log of a failed container.
const failedTail = 20

func (l *Logs) printLog(p *v1.Pod, s v1.ContainerStatus, whole bool) {
	var o cri.ReadOptions
	if tail := failedTail; !whole {
		o.Tail = &tail
	}
	path := l.Dirs.ContainerLog(pod.KeyOf(p), p.UID, s.Name, int(s.RestartCount))
	out, errOut := cli.ForTerminal(l.Out), cli.ForTerminal(l.ErrOut)
	if err := cri.Read(context.Background(), path, o, out, errOut); err != nil {
		l.Log.Debug("reading container log failed", "pod", p.Name, "container", s.Name, "err", err)
	}
}
