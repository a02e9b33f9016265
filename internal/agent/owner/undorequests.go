package owner

import (
	"log/slog"
	"strings"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/sys/watch"
	"podrun.io/podrun/internal/workload/revisions"
)

// UndoRequests pass requests to go back from a revision from podrun undo to serve. A request names the revision, so one
// that is read again after a crash undoes nothing twice.
type UndoRequests struct{ files[revisions.Undo] }

// NewUndoRequests returns the requests below the run directory.
func NewUndoRequests(dirs layout.Dirs, log *slog.Logger) *UndoRequests {
	r := &UndoRequests{files[revisions.Undo]{
		dir: layout.UndoRequests(dirs), run: dirs.Run, log: log, what: "an undo",
		name: func(q revisions.Undo) string { // none of them has an underscore
			return strings.Join([]string{q.Kind, q.Namespace, q.Name, q.Revision}, "_")
		},
		parse: func(name string) (revisions.Undo, bool) {
			p := strings.Split(name, "_")
			if len(p) != 4 {
				return revisions.Undo{}, false
			}
			return revisions.Undo{Kind: p[0], Namespace: p[1], Name: p[2], Revision: p[3]}, true
		},
		Changed: make(chan struct{}), watch: watch.New(log),
	}}
	r.stale = r.isAbandoned
	return r
}
