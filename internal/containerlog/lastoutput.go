package containerlog

import (
	"context"

	"podrun.io/podrun/internal/containerlog/cri"
	"podrun.io/podrun/internal/pod"
)

// How much of the end of a log becomes the message of a container that failed without one, as in
// Kubernetes.
const (
	endLines = 80
	endBytes = 2048
)

// LastOutput returns the end of a finished instance's output; what cannot be read is left out.
func (t *Tailer) LastOutput(ctx context.Context, inst pod.Instance) string {
	lines, end := endLines, lastBytes{}
	path := t.o.Dirs.ContainerLog(inst.Key, inst.UID, inst.Container, inst.Attempt)
	if err := cri.Read(ctx, path, cri.ReadOptions{Tail: &lines}, &end, &end); err != nil {
		t.o.Log.Debug("reading the end of a container log failed", "file", path, "err", err)
	}
	return string(end.text)
}

// lastBytes keeps the last endBytes bytes that are written to it.
type lastBytes struct{ text []byte }

func (b *lastBytes) Write(p []byte) (int, error) {
	b.text = append(b.text, p[max(0, len(p)-endBytes):]...)
	if over := len(b.text) - endBytes; over > 0 {
		b.text = append(b.text[:0], b.text[over:]...)
	}
	return len(p), nil
}
