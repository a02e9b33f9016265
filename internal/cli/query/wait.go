package query

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/status"
)

var errTimedOut = errors.New("timed out")

// WaitOptions are the options of Wait.
type WaitOptions struct {
	Namespace string
	Names     []string
	Condition Condition
	Timeout   time.Duration // 0: check once
}

// Wait waits until each of the pods meets the condition, and prints those that do.
func (r *Reader) Wait(ctx context.Context, out io.Writer, o WaitOptions) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, errTimedOut)
	defer cancel()
	pending, details := o.Names, o.Names // details is pending, with the message of Unowned pods
	err := r.OnChange(ctx, r.Dirs.StatusFiles().Dir(), func() (bool, error) {
		pods, err := r.Settled()
		if err != nil {
			return false, err
		}
		var unmet []string
		details = nil
		for _, name := range pending {
			p, err := Find(InNamespace(pods, o.Namespace), name)
			var notFound *NotFoundError
			switch {
			case err != nil && !errors.As(err, &notFound):
				return false, err
			case !o.Condition(p):
				unmet = append(unmet, name)
				if p != nil && status.IsUnowned(p) {
					name += " (" + p.Status.Message + ")"
				}
				details = append(details, name)
			default:
				fmt.Fprintf(out, "pod/%s condition met\n", BareName(name))
			}
		}
		pending = unmet
		return len(pending) == 0, nil
	})
	if errors.Is(err, errTimedOut) {
		return &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("timed out waiting for %s", strings.Join(details, ", "))}
	}
	return err
}
