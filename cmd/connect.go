package cmd

import (
	"context"
	"time"

	"podrun.io/podrun/internal/agent"
	"podrun.io/podrun/internal/agent/connection"
	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/agenterror"
	"podrun.io/podrun/internal/cli/flags"
	"podrun.io/podrun/internal/cli/images"
	"podrun.io/podrun/internal/cli/list"
	"podrun.io/podrun/internal/cli/pending"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/cli/request"
)

// pods returns a reader of the pods in the run directory.
func (a *app) pods() *query.Reader {
	return &query.Reader{Dirs: a.Dirs(), Owners: owner.Reader{Dirs: a.Dirs()}, Log: a.log}
}

// restarter returns what requests restarts of containers.
func (a *app) restarter() request.Restarter {
	return request.Restarter{
		Streams: a.Streams, Reader: a.pods(), Requests: owner.NewRequests(a.Dirs(), a.log), Accept: 30 * time.Second,
	}
}

// wakeForImages lets the pods that wait for one of the images try again.
func (a *app) wakeForImages(refs []string) {
	if err := a.restarter().Images(images.Same(refs)); err != nil {
		cli.Warnf(a.ErrOut, "pods that wait for the images start later: %v", err)
	}
}

// lister returns a lister of the pods, events and volumes in the directories.
func (a *app) lister() *list.Lister {
	return &list.Lister{Streams: a.Streams, Reader: a.pods(), Log: a.log, Pending: a.pending().Text}
}

// pending returns what says what the serve would do that runs, or ran last.
func (a *app) pending() pending.Serve {
	return pending.Serve{Options: a.agentOptions(), Reader: a.pods(), Streams: a.Streams}
}

// connection returns the options to connect to containerd that the global flags and the environment
// give.
func (a *app) connection() connection.Options { return a.Connection(a.log) }

// connect connects to containerd, for a command that creates no pods.
func (a *app) connect(ctx context.Context) (*connection.Connection, error) {
	c, err := connection.Open(ctx, a.connection())
	return c, agenterror.Unreachable(ctx, err)
}

// agentOptions returns the options of the agent that all commands share.
func (a *app) agentOptions() agent.Options {
	return agent.Options{
		Dirs:        a.Dirs(),
		Connect:     a.connection(),
		Stdin:       a.In,
		Log:         a.log,
		LogRotation: flags.DefaultRotation,
	}
}
