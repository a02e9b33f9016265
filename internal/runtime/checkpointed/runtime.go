// Package checkpointed implements the runtime port with a runtime.Driver and the checkpoints of
// pods. It gives sandboxes and instances their IDs, saves the IDs in the checkpoint before the
// engine creates anything, records the exit of an instance before the engine forgets it, and merges
// the checkpoints with what the engine lists. An instance whose exit nobody saw, as after a reboot,
// it reports as exited (list.go). It is the only writer of checkpoints, except for the conversion of
// the former version's pods (checkpoint.Store.Restore). A process calls its mutations only for pods
// whose owner lock it holds.
//
// It makes no decisions and does not know which engine it uses. Begin reading at Runtime and at
// merge.
package checkpointed

import (
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"sync"
	"time"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// Options configure a Runtime. Driver, Store, Boot, Dirs and Log are required.
type Options struct {
	Driver runtime.Driver
	Store  *checkpoint.Store
	// Boot returns the kernel's boot id.
	Boot func() string
	Dirs layout.Dirs
	// KeepLogs leaves the logs of removed revisions in place.
	KeepLogs bool
	// Wall returns the wall-clock time to record; nil means time.Now.
	Wall func() time.Time
	// NewID returns an ID that has never been used before; nil means 128 random bits in
	// hexadecimal.
	NewID func(of ID) string
	Log   *slog.Logger
}

// ID describes the object for which an ID is generated.
type ID struct {
	UID pod.UID
	// Container is the container of an instance; "" means that the ID is for a sandbox.
	Container string
	Attempt   int
}

// Runtime implements the runtime port. Its methods may be called concurrently, except that the
// mutations of one pod must be called one after the other.
type Runtime struct {
	// The roles that the engine implements itself.
	runtime.Notifier
	runtime.Images
	runtime.Execer
	runtime.Attacher
	runtime.Layers
	// The roles that need only the checkpoints or only read.
	*lister
	data

	o *Options
}

var (
	_ runtime.Lister     = (*Runtime)(nil)
	_ runtime.Sandboxes  = (*Runtime)(nil)
	_ runtime.Containers = (*Runtime)(nil)
	_ runtime.Data       = (*Runtime)(nil)
)

// New returns a Runtime. It does not access anything yet.
func New(o Options) *Runtime {
	if o.Wall == nil {
		o.Wall = time.Now
	}
	if o.NewID == nil {
		o.NewID = func(ID) string { return randomID() }
	}
	d := o.Driver
	return &Runtime{
		Notifier: d, Images: d, Execer: execer{d}, Attacher: d, Layers: d,
		lister: &lister{o: &o}, data: data{&o, &sync.Map{}}, o: &o,
	}
}

// Store returns the checkpoint store.
func (r *Runtime) Store() *checkpoint.Store { return r.o.Store }

func randomID() string {
	var bits [16]byte
	_, _ = rand.Read(bits[:]) // never fails
	return hex.EncodeToString(bits[:])
}

// now returns the time to record: the wall clock in UTC, without a monotonic reading.
func (o *Options) now() time.Time { return o.Wall().UTC().Round(0) }
