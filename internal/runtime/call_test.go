package runtime

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestCall: what takes long is reported once, and given up when nobody wants it any more, though what it is done in goes on.
func TestCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		takes := func(d time.Duration) func(context.Context) error {
			return func(ctx context.Context) error {
				select {
				case <-time.After(d):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}
		wanted, end := context.WithCancel(t.Context())
		var reports []string
		ctx := WithCaller(t.Context(), wanted, func(reason, message string) { reports = append(reports, reason+": "+message) })
		if err := Call(ctx, "R", "short", takes(2*time.Second)); err != nil || len(reports) > 0 {
			t.Errorf("%v, %q", err, reports)
		}
		if err := Call(ctx, "R", "long", takes(time.Minute)); err != nil || len(reports) != 1 || reports[0] != "R: long" {
			t.Errorf("%v, %q", err, reports)
		}
		begun := time.Now()
		time.AfterFunc(time.Second, end)
		if err := Call(ctx, "R", "ended", takes(time.Hour)); !errors.Is(err, context.Canceled) || time.Since(begun) != time.Second {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
		if err := ctx.Err(); err != nil {
			t.Error(err)
		}
		if err := Call(t.Context(), "R", "for nobody", takes(time.Minute)); err != nil || len(reports) != 1 {
			t.Errorf("%v, %q", err, reports)
		}
	})
}
