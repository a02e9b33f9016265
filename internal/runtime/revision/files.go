// Package revision keeps what podrun knows of each revision of a pod in files of the revision's own directory: the
// manifest that it runs, the newest instances of its containers, and for each instance a mark that it may have run, with
// notes of how far it has been brought to its end. It removes the directory, with the volumes in it, and the logs; when,
// others decide. It makes no volumes and no logs, and knows nothing of containers but what it is told.
//
// A revision's directory always has a manifest: it comes with it, and the manifest goes last.
package revision

import (
	"log/slog"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/memo"
	"podrun.io/podrun/internal/pod"
)

// Options are what Files need. Dirs, Boot and Log must be given.
type Options struct {
	Dirs layout.Dirs
	// Boot is the kernel's boot id.
	Boot string
	// KeepLogs leaves a revision's logs where they are when all else of it is removed; see logs.Retired.
	KeepLogs bool
	Log      *slog.Logger
}

// Files are those of all revisions. They implement runtime.Data, but for what a runtime has to remove beside them. Their
// methods may be used at the same time.
type Files struct {
	o Options
	// manifests has what was read of the revisions' manifests.
	manifests memo.Map[pod.UID, Saved]
	// notes has what was noted down of instances.
	notes memo.Map[string, pod.Notes]
}

// New returns the revisions' files below the directories.
func New(o Options) *Files { return &Files{o: o} }
