package deadline

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestPromptly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		if got, err := Promptly(t.Context(), func() (int, error) { time.Sleep(time.Hour); return 7, nil }); got != 7 || err != nil {
			t.Errorf("%d, %v", got, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		got, err := Promptly(ctx, func() (int, error) { time.Sleep(promptness / 2); return 7, nil }) // it ends in time
		if got != 7 || err != nil {
			t.Errorf("%d, %v", got, err)
		}
		got, err = Promptly(ctx, func() (int, error) { time.Sleep(time.Hour); return 7, nil })
		if took := time.Since(began); got != 0 || !errors.Is(err, context.Canceled) || took != promptness*3/2 {
			t.Errorf("%d, %v after %v", got, err, took)
		}
		time.Sleep(time.Hour)
	})
}

func TestCleanup(t *testing.T) {
	t.Parallel()
	const grace, most = 30 * time.Second, 10 * time.Second
	for name, c := range map[string]struct {
		runs, interrupt, hurry time.Duration // 0: not
		want                   time.Duration
	}{
		"nothing runs":                  {want: most},
		"a pod ends early":              {runs: 5 * time.Second, want: 5*time.Second + most},
		"a pod never ends":              {runs: time.Hour, want: grace + most},
		"an interrupt":                  {interrupt: 2 * time.Second, want: 2*time.Second + promptness},
		"an interrupt while a pod runs": {runs: 5 * time.Second, interrupt: 2 * time.Second, want: 5*time.Second + promptness},
		"a hurry while a pod runs":      {runs: time.Hour, hurry: 3 * time.Second, want: 3*time.Second + killTime},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, heard := time.Now(), false
				after := func(d time.Duration) <-chan struct{} {
					done := make(chan struct{})
					if d > 0 {
						time.AfterFunc(d, func() { close(done) })
					}
					return done
				}
				ctx, cancel := Cleanup{
					Begun: began, Grace: grace, Most: most,
					Runs:        func() bool { return time.Since(began) < c.runs },
					Interrupted: after(c.interrupt), OnInterrupt: func() { heard = true },
					Hurry: after(c.hurry),
				}.Begin()
				defer cancel()
				<-ctx.Done()
				if took := time.Since(began); (took - c.want).Abs() > 2*endPoll {
					t.Errorf("took %v, want %v", took, c.want)
				}
				if heard != (c.interrupt > 0) {
					t.Errorf("interrupted: %t", heard)
				}
			})
		})
	}
}
