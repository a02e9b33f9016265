// Package agenterror gives errors of package agent the exit codes and hints that all commands have
// in common. It decides by the kind of an error only.
//
// Begin reading at Explain.
package agenterror

import (
	"context"
	"errors"
	"strings"

	"podrun.io/podrun/internal/agent/connection"
	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/agent/sources"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/embedded"
	"podrun.io/podrun/internal/reconcile"
	"podrun.io/podrun/internal/sys/own"
)

// IsUsage reports that the options are wrong.
func IsUsage(err error) bool { return errors.Is(err, sources.ErrUsage) }

// Explain gives an error of the agent its exit code and hint. command is the command line that
// failed, such as podrun once. An error that has nothing to add is returned unchanged.
func Explain(ctx context.Context, command string, err error) error {
	var manifest *sources.ManifestError
	var elsewhere *connection.ElsewhereError
	var owned *owner.OwnedError
	var locked *reconcile.LockError
	var loose *own.LooseError
	switch {
	case IsUsage(err):
		return cli.UsageError(command, err)
	case errors.Is(err, sources.ErrCronJob):
		return &cli.Error{
			Code: cli.ExitUsage,
			Err:  err,
			Hint: "nothing was started; to run it once, make a Job of its jobTemplate, or under serve run " +
				"podrun create job NAME --from=cronjob/NAME",
		}
	case errors.As(err, &manifest):
		hint := "nothing was started"
		if !manifest.Valid {
			hint += "; podrun validate checks manifests without running them"
		}
		return &cli.Error{Code: cli.ExitUsage, Err: err, Hint: hint}
	case errors.As(err, &owned):
		return &cli.Error{Code: cli.ExitUsage, Err: err, Hint: ownedHint(command, owned)}
	case errors.As(err, &locked):
		return &cli.Error{Code: cli.ExitUsage, Err: err, Hint: "no pod was changed"}
	case errors.As(err, &loose):
		return &cli.Error{Code: cli.ExitUsage, Err: err, Hint: "no pod was changed"}
	case errors.Is(err, connection.ErrKubelet):
		return &cli.Error{
			Code: cli.ExitUsage, Err: err, Hint: "stop it first, or run without --plugins; no pod was changed",
		}
	case errors.As(err, &elsewhere):
		return &cli.Error{Code: cli.ExitFailed, Err: err, Hint: elsewhere.Hint()}
	case errors.Is(err, owner.ErrEnding):
		return &cli.Error{Code: cli.ExitFailed, Err: err, Hint: "wait until it is done, or interrupt it"}
	case errors.Is(err, owner.ErrServing):
		return &cli.Error{
			Code: cli.ExitFailed,
			Err:  err,
			Hint: "stop it first, or give this one its own --run-dir and --root-dir",
		}
	}
	return Unreachable(ctx, err)
}

// Down gives an error of agent.Down its exit code and hint. interrupted is the exit code if ctx was cancelled.
func Down(ctx context.Context, command string, interrupted int, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return &cli.Error{
			Code: interrupted,
			Err:  errors.New("interrupted; run podrun down again to remove what is left"),
		}
	}
	if owned := (*owner.OwnedError)(nil); errors.Is(err, owner.ErrServing) &&
		(!errors.As(err, &owned) || owned.Serve) {
		return &cli.Error{
			Code: cli.ExitFailed,
			Err:  err,
			Hint: "remove the pod's manifest, then serve stops the pod; or stop its owner process first",
		}
	}
	return Explain(ctx, command, err)
}

// ownedHint returns the hint for a command that failed because another process owns a pod.
func ownedHint(command string, owned *owner.OwnedError) string {
	const wait = "wait until that one has ended, or end it"
	switch {
	case strings.HasSuffix(command, " down"):
		return "nothing was stopped; " + wait
	case owned.Serve:
		return "nothing was started; serve keeps it: take its manifest away first, or leave it to serve"
	}
	return "nothing was started; " + wait
}

// Unreachable gives an error of connection.Open its exit code and hint. It returns other errors
// unchanged.
func Unreachable(ctx context.Context, err error) error {
	var u *connection.UnreachableError
	if elsewhere := (*connection.ElsewhereError)(nil); ctx.Err() == nil && errors.As(err, &elsewhere) {
		return &cli.Error{Code: cli.ExitFailed, Err: err, Hint: "give this command --root-dir " + elsewhere.Root + " too"}
	}
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
