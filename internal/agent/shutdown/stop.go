package shutdown

import (
	"context"
	"time"

	"podrun.io/podrun/internal/nodeshutdown"
)

// Manager is the service manager that stops serve.
type Manager interface {
	// Stopping reports that serve has begun to stop.
	Stopping()
	// Extend asks for that much time to stop, from now on.
	Extend(by time.Duration)
	// Waits reports whether there is a service manager that waits until serve has stopped.
	Waits() bool
}

// stopMargin is how much longer than the pods' grace serve may take to stop.
const stopMargin = 15 * time.Second

// Outlive returns a context that ends when ctx ends or, if the machine is shutting down, when the pods
// have ended after that. So they end in order without logind too: systemd stops serve before what
// pods need, and kills what is left of them only after that. Hurry ends the wait.
func (s *Pods) Outlive(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	out, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		s.Manager.Stopping()
		s.endWithMachine(out)
		end(context.Cause(ctx))
	})
	return out, func(cause error) {
		stop()
		end(cause)
	}
}

// endWithMachine terminates the pods if the machine is shutting down.
func (s *Pods) endWithMachine(ctx context.Context) {
	if s.Grace <= 0 {
		return
	}
	stopping, err := nodeshutdown.Stopping(ctx)
	if err != nil {
		s.Log.Warn("cannot tell whether the node is shutting down; pods keep running", "err", err)
	}
	if !stopping {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-s.Hurry:
			cancel()
		case <-ctx.Done():
		}
	}()
	s.Log.Info("node is shutting down; terminating pods", "within", s.Grace)
	s.Manager.Extend(s.Grace + stopMargin)
	s.Begin(ctx, s.Grace)
}

// StopAll returns the loop's StopAll: if stop says so, all pods end with serve, and the service manager waits for them.
func (s *Pods) StopAll(stop func() bool) func(longest time.Duration) bool {
	return func(longest time.Duration) bool {
		if !stop() {
			return false
		}
		s.Manager.Extend(longest)
		return true
	}
}
