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
	lines, end := endLines, LastBytes{Max: endBytes}
	path := t.o.Dirs.ContainerLog(inst.Key, inst.UID, inst.Container, inst.Attempt)
	if err := cri.Read(ctx, path, cri.ReadOptions{Tail: &lines}, &end, &end); err != nil {
		t.o.Log.Debug("reading the end of a container log failed", "file", path, "err", err)
	}
	return end.String()
}

// LastBytes keeps the last Max bytes that are written to it.
type LastBytes struct {
	Max  int
	text []byte
}

// String returns the bytes.
func (b *LastBytes) String() string { return string(b.text) }

// Write implements io.Writer.
func (b *LastBytes) Write(p []byte) (int, error) {
	b.text = append(b.text, p[max(0, len(p)-b.Max):]...)
	if over := len(b.text) - b.Max; over > 0 {
		b.text = append(b.text[:0], b.text[over:]...)
	}
	return len(p), nil
}
