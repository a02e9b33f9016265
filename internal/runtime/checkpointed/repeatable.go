package checkpointed

import (
	"context"
	"strings"

	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/sys/errtext"
)

// repeatable is an error of the driver without the ID that was made for the attempt that failed. The
// next attempt has another ID, so a text with it would be new each time: equal events would not be
// counted as one, and would displace the other events of the pod. Paths contain the ID too, and so
// do texts of containerd, runc and CNI plugins.
type repeatable struct {
	err error
	id  string
}

func (e *repeatable) Error() string { return strings.ReplaceAll(e.err.Error(), e.id, "…") }
func (e *repeatable) Unwrap() error { return e.err }

// withoutID returns err with a text that does not contain id; nil for nil.
func withoutID(err error, id string) error {
	if err == nil || id == "" {
		return err
	}
	if without := (&repeatable{err, id}); !errtext.Same(without, err) {
		return without
	}
	return err
}

// execer returns errors without the ID of the instance, because each restart makes a new one.
type execer struct{ runtime.Execer }

// Exec implements runtime.Execer.
func (x execer) Exec(ctx context.Context, id string, cmd []string, streams runtime.ExecIO) (int, error) {
	code, err := x.Execer.Exec(ctx, id, cmd, streams)
	return code, withoutID(err, id)
}
