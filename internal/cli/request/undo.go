package request

import (
	"context"
	"errors"
	"fmt"
	"time"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/workload/revisions"
)

// UndoHelp is the help of podrun undo, and UndoExample its example.
const (
	UndoHelp = "undo has serve run the revision of a pod or workload that was healthy before the one that runs, as if that\n" +
		"had not become healthy. It is not tried again before the manifest changes. podrun history lists the revisions."
	UndoExample = "  podrun undo web\n  podrun undo deployment/web"
)

// Undos is where it is requested to go back.
type Undos interface {
	Post(q revisions.Undo) error
	Pending(q revisions.Undo) bool
	Remove(q revisions.Undo)
}

// Undoer asks to go back from revisions.
type Undoer struct {
	Streams  cli.Streams
	Reader   *query.Reader
	Requests Undos
	// Accept is how long serve may take to answer.
	Accept time.Duration
}

var errNotUndone = errors.New("not answered in time")

// Revision asks to go back from the revision of what args name that runs, and returns when that is decided.
func (u Undoer) Revision(ctx context.Context, namespace string, args []string) error {
	id, h, err := u.Reader.Revisions(namespace, args)
	if err != nil {
		return err
	}
	running, can := h.CanUndo()
	switch _, alive := u.Reader.Owners.LastSeen(); {
	case h.RolledBack != "":
		return fmt.Errorf("%s is rolled back already: %s", id, h.Reason())
	case !can:
		return &cli.Error{
			Code: cli.ExitFailed, Err: fmt.Errorf("%s has no former revision that was healthy", id),
			Hint: "podrun history lists its revisions",
		}
	case !alive && !u.Reader.Owners.JustBegun(starting):
		return &cli.Error{
			Code: cli.ExitFailed, Err: errors.New("no podrun serve runs"), Hint: "podrun serve runs the pods of its manifests",
		}
	}
	q := revisions.Undo{Kind: string(id.Kind), Namespace: id.Key.Namespace, Name: id.Key.Name, Revision: running}
	if err := u.Requests.Post(q); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, u.Accept, errNotUndone)
	defer cancel()
	err = u.Reader.OnChange(ctx, u.Reader.Dirs.Run, func() (bool, error) { return !u.Requests.Pending(q), nil })
	if err != nil {
		u.Requests.Remove(q)
	}
	if errors.Is(err, errNotUndone) {
		return fmt.Errorf("podrun serve has not answered within %s; the request is withdrawn", u.Accept)
	}
	if err != nil {
		return err
	}
	if _, h, err = u.Reader.Revisions(namespace, args); err == nil && h.RolledBack != running {
		err = fmt.Errorf("%s was not rolled back: another revision of it runs now", id)
	}
	if err == nil {
		_, err = fmt.Fprintf(u.Streams.Out, "%s rolled back to revision %s\n", id, revisions.Short(h.Good.ID))
	}
	return err
}
