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
	left, late := o.Names, o.Names // late is left, with the message of Unowned pods
	err := r.OnChange(ctx, r.Dirs.StatusFiles().Dir(), func() (bool, error) {
		pods, err := r.Settled()
		if err != nil {
			return false, err
		}
		var not []string
		late = nil
		for _, name := range left {
			p, err := Find(InNamespace(pods, o.Namespace), name)
			var absent *NotFoundError
			switch {
			case err != nil && !errors.As(err, &absent):
				return false, err
			case !o.Condition(p):
				not = append(not, name)
				if p != nil && status.IsUnowned(p) {
					name += " (" + p.Status.Message + ")"
				}
				late = append(late, name)
			default:
				fmt.Fprintf(out, "pod/%s condition met\n", BareName(name))
			}
		}
		left = not
		return len(left) == 0, nil
	})
	if errors.Is(err, errTimedOut) {
		return &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("timed out waiting for %s", strings.Join(late, ", "))}
	}
	return err
}
