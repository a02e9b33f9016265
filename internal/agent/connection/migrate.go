package connection

import (
	"context"
	"errors"

	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/checkpoint"
)

// errFormerServe says that the pods of a former version cannot be adopted yet, because their podrun
// still runs.
var errFormerServe = errors.New("podrun serve of that version is still running; restart it first")

// migrate creates checkpoints, once, from what the former version of podrun saved of its pods, so
// that they are adopted without a restart. It may be removed after the next release.
//
// If migrate fails, nothing may be done to any pod: the running instances would be taken for
// somebody else's.
func (c *Connection) migrate(ctx context.Context, beside bool) error {
	legacy, err := c.Driver.Legacy(ctx)
	if err != nil || len(legacy) == 0 {
		return err
	}
	if beside && owner.Serving(c.o.Dirs) {
		return errFormerServe
	}
	store := c.Runtime.Store()
	for i := range legacy {
		old := &legacy[i]
		_, err := store.Get(old.UID())
		if errors.Is(err, checkpoint.ErrNotFound) {
			err = store.Restore(old)
		}
		if err == nil {
			// If this is interrupted, the next start finishes it.
			err = c.Driver.ForgetLegacy(old.UID())
		}
		if err != nil {
			return err
		}
		c.o.Log.Info("adopted a pod of a former version", "pod", old.Key().String(), "uid", old.UID())
	}
	return nil
}
