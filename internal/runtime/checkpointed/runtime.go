// Package checkpointed makes the runtime port of a container engine and the checkpoints of pods. It gives sandboxes
// and instances their IDs, writes them down before the engine makes anything, records how instances end before
// the engine forgets it, and tells what is there by what both say. It is the only writer of checkpoints; a process
// uses its mutations for pods whose owner lock it has.
//
// It decides nothing, and does not know which engine it has. Begin reading at Runtime and at merge.
package checkpointed

import (
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"sync"
	"time"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// Options are what a Runtime needs. Driver, Store and Log must be given.
type Options struct {
	Driver runtime.Driver
	Store  *checkpoint.Store
	// Boot returns the kernel's boot id.
	Boot func() string
	Dirs layout.Dirs
	// KeepLogs leaves the logs of removed revisions where they are.
	KeepLogs bool
	// Wall is the clock by which times are recorded; nil: the machine's.
	Wall func() time.Time
	// NewID returns an ID that was never used before; nil: 128 random bits in hex.
	NewID func(of ID) string
	Log   *slog.Logger
}

// ID says what an ID is for.
type ID struct {
	UID pod.UID
	// Container is the instance's; "": it is a sandbox's.
	Container string
	Attempt   int
}

// Runtime implements the port. Its methods may be used at the same time, the mutations of one pod's one after the
// other.
type Runtime struct {
	// The engine's own roles.
	runtime.Notifier
	runtime.Images
	runtime.Execer
	runtime.Attacher
	runtime.Layers

	driver runtime.Driver
	store  *checkpoint.Store
	o      Options
	// noticed is when it was first seen of an instance, by its ID, that its exit is lost, until that is recorded.
	noticed sync.Map
}

var (
	_ runtime.Lister     = (*Runtime)(nil)
	_ runtime.Sandboxes  = (*Runtime)(nil)
	_ runtime.Containers = (*Runtime)(nil)
	_ runtime.Data       = (*Runtime)(nil)
)

// New returns the runtime; it touches nothing yet.
func New(o Options) *Runtime {
	if o.Wall == nil {
		o.Wall = time.Now
	}
	if o.NewID == nil {
		o.NewID = func(ID) string { return randomID() }
	}
	d := o.Driver
	return &Runtime{Notifier: d, Images: d, Execer: d, Attacher: d, Layers: d, driver: d, store: o.Store, o: o}
}

// Store returns the checkpoints.
func (r *Runtime) Store() *checkpoint.Store { return r.store }

func randomID() string {
	var bits [16]byte
	_, _ = rand.Read(bits[:]) // it never fails
	return hex.EncodeToString(bits[:])
}

// now is the time to record.
func (r *Runtime) now() time.Time { return r.o.Wall().UTC().Round(0) }

// lostAt is when it was noticed that the instance's exit is lost, as the CRI has it; not before its start, should the
// clock have been set back.
func (r *Runtime) lostAt(c pod.Container) time.Time {
	at, _ := r.noticed.LoadOrStore(c.ID, r.now())
	if at := at.(time.Time); at.After(c.StartedAt) {
		return at
	}
	return c.StartedAt
}
