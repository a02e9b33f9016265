package containerlog

import (
	"context"

	"podrun.io/podrun/internal/pod"
)

// How much of the end of a log becomes the message of a container that failed without one, as in
// Kubernetes.
const (
	endLines = 80
	endBytes = 2048
)

// End returns the end of a finished instance's output; what cannot be read is left out.
func (t *Tailer) End(ctx context.Context, inst pod.Instance) string {
	lines, end := endLines, ending{}
	path := t.dirs.ContainerLog(inst.Key, inst.UID, inst.Container, inst.Attempt)
	if err := Read(ctx, path, ReadOptions{Tail: &lines}, &end, &end); err != nil {
		t.log.Debug("reading the end of a container log failed", "file", path, "err", err)
	}
	return string(end.last)
}

// ending keeps the last endBytes bytes that are written to it.
type ending struct{ last []byte }

func (e *ending) Write(p []byte) (int, error) {
	e.last = append(e.last, p[max(0, len(p)-endBytes):]...)
	if over := len(e.last) - endBytes; over > 0 {
		e.last = append(e.last[:0], e.last[over:]...)
	}
	return len(p), nil
}
