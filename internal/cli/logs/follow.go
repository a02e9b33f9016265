package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/containerlog"
	"podrun.io/podrun/internal/containerlog/cri"
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status/summary"
)

// successor waits for the instance that follows an instance that has ended. more is false if there
// will be none.
func (l *Printer) successor(ctx context.Context, s Log) (next pod.Instance, more bool, err error) {
	next = s.inst
	next.ID, next.Attempt = "", next.Attempt+1
	err = l.Pods.OnChange(ctx, l.Pods.Dirs.StatusFiles().Dir(), func() (bool, error) {
		p, err := query.ReadPod(l.Pods.Dirs.StatusFiles().Pod(s.inst.Key))
		if errors.Is(err, fs.ErrNotExist) || err == nil && p.UID != s.inst.UID {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		i := slices.IndexFunc(summary.Roles(p), func(r summary.Role) bool {
			return r.Container.Name == s.inst.Container
		})
		if i < 0 {
			return true, nil
		}
		r := summary.Roles(p)[i]
		if r.Status != nil && int(r.Status.RestartCount) >= next.Attempt {
			more = true
			if int(r.Status.RestartCount) == next.Attempt {
				next.ID = r.InstanceID()
			}
			return true, nil
		}
		_, alive := l.Pods.Owners.LastSeen()
		owned, known := l.Pods.Owners.Kept(s.inst.Key)
		return !alive || known && !owned || willNotRestart(p, r), nil
	})
	return next, more, err
}

// willNotRestart reports whether a container will not run again.
func willNotRestart(p *v1.Pod, r summary.Role) bool {
	if p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
		return true
	}
	if r.Status == nil || r.Status.State.Terminated == nil {
		return false
	}
	code := int(r.Status.State.Terminated.ExitCode)
	return r.Init && !pod.IsSidecar(r.Container) && code == 0 || !plan.ShouldRestart(p, r.Container, code)
}

// readLog prints the log of an instance, also output that no other process has converted yet.
func (l *Printer) readLog(
	ctx context.Context,
	inst pod.Instance,
	o cri.ReadOptions,
	out, errOut io.Writer,
) error {
	logs := containerlog.Reader{Dirs: l.Pods.Dirs, Convert: true, Warn: func(err error) {
		cli.Warnf(l.ErrOut, "the newest lines may be missing: %v", err)
	}}
	err := logs.Read(ctx, inst, o, out, errOut)
	if errors.Is(err, fs.ErrNotExist) {
		return &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("container %q in pod %q has %w of run %d any more",
			inst.Container, inst.Key.Name, errNoLog, inst.Attempt)}
	}
	return err
}

var errNoLog = errors.New("no log")
