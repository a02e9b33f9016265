package cmd

import (
	"context"
	"errors"

	"podrun.io/podrun/internal/agent/connection"
	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/embedded"
)

// pods returns a reader of the pods in the run directory.
func (a *app) pods() *query.Reader {
	return &query.Reader{Dirs: a.Dirs(), Owners: owner.Reader{Dirs: a.Dirs()}, Log: a.log}
}

// connection returns the options to connect to containerd that the global flags and the environment
// give.
func (a *app) connection() connection.Options { return a.Connection(a.log) }

// connect connects to containerd, for a command that creates no pods.
func (a *app) connect(ctx context.Context) (*connection.Connection, error) {
	c, err := connection.Open(ctx, a.connection())
	return c, unreachable(ctx, err)
}

// unreachable gives an error of connection.Open its exit code and hint. It returns other errors
// unchanged.
func unreachable(ctx context.Context, err error) error {
	var u *connection.UnreachableError
	switch {
	case err == nil || ctx.Err() != nil || !errors.As(err, &u):
		return err
	case errors.Is(err, embedded.ErrNotRoot):
		return &cli.Error{Code: cli.ExitUsage, Err: err,
			Hint: "run it with sudo, or name another containerd with --containerd-address"}
	case errors.Is(err, embedded.ErrNoRunc), u.Address == connection.Embedded:
		return &cli.Error{Code: cli.ExitNoRuntime, Err: err}
	}
	return &cli.Error{Code: cli.ExitNoRuntime, Err: err,
		Hint: "is it running? --containerd-address names another, or embedded for podrun's own"}
}
