// Package runtime is the port between podrun's decisions and whatever runs containers: small role
// interfaces and their contract. It owns no implementation; runtime/containerd and runtime/fake are
// two, and runtime/runtimetest holds both to this text.
//
// Every mutation may be repeated: what is already so, or already gone, is success.
package runtime

import (
	"context"
	"io"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// Lister reads the truth. It never returns a partial answer: an error means that nothing is known, and an
// *UnknownError of List that nothing is known of the pods that it names.
type Lister interface {
	// List returns every pod of which anything is left, podrun's own only.
	List(ctx context.Context) ([]pod.Observed, error)
	// Inspect returns what is left of one pod; an empty Observed (with its Key) when nothing is.
	Inspect(ctx context.Context, key pod.Key) (pod.Observed, error)
}

// Wakeup says that a pod may have changed. It carries no fact: whoever hears it looks.
type Wakeup struct {
	Key pod.Key
	// All means that any pod may have changed, as after a gap in the stream.
	All bool
	// At is when the runtime says that it happened; zero where it does not say. Good for measuring only.
	At time.Time
	// Echo means that podrun's own doing may have caused it: it tells nothing to who has looked since.
	Echo bool
}

// Notifier turns the runtime's event stream into rings.
type Notifier interface {
	// Wakeups delivers until ctx ends or the stream breaks; then it closes the channel. The caller
	// subscribes again. Rings may repeat and may be for pods that did not change.
	Wakeups(ctx context.Context) (<-chan Wakeup, error)
}

// Sandboxes makes and removes what a pod's containers share.
type Sandboxes interface {
	// CreateSandbox pins the pod's namespaces and connects its network. The same attempt asked for
	// again replaces what an interrupted call left. A *ReasonError with ReasonHostPortConflict says that
	// another pod or a process has a host port; the pod's other revisions' are taken over.
	CreateSandbox(ctx context.Context, p *v1.Pod, attempt int) error
	// RemoveSandbox releases all that the sandbox held, addresses too.
	RemoveSandbox(ctx context.Context, id string) error
}

// Start is what StartContainer needs beside the pod.
type Start struct {
	Pod               *v1.Pod
	Container         *v1.Container
	Sandbox           pod.Sandbox
	Attempt           int
	Backoff           int
	RestartGeneration int
	// Image is the resolved image to run, as Images returned it.
	Image pod.Image
	// Env are the container's own variables, resolved; its command line may refer to them.
	Env []pod.Variable
	// Mounts are in order, sources on the host checked and ready.
	Mounts []pod.Mount
	// ID is the instance's: it was never used before, and is not used again. Callers of Containers leave it
	// empty; a Driver is given it.
	ID string
	// Started is called by a Driver when the instance has been made, just before its process is started; when it
	// fails, the process is not started.
	Started func() error
}

// Containers acts on single instances. IDs are those that Lister reported.
type Containers interface {
	// StartContainer makes a new instance with a fresh root filesystem and runs it. An error of kind
	// StartError means that the instance exists, is Exited and counts as an attempt;
	// after any other error there is no instance.
	StartContainer(ctx context.Context, s Start) error
	// ResizeContainer gives a running instance of the pod's container, and the pod with it, the CPU and
	// memory that the manifest says. One that does not run is left alone. A limit of memory below what
	// is used is an error, never a kill.
	ResizeContainer(ctx context.Context, id string, p *v1.Pod, c *v1.Container) error
	// SignalContainer sends a signal to the instance's main process; for KILL, to all of its processes.
	SignalContainer(ctx context.Context, id string, signal string) error
	// ReapContainer records the exit of an Exited instance durably and frees what it held, but for its
	// root filesystem and record. message is recorded as what it has to say about its end, unless it has
	// left a message itself; "" is none.
	ReapContainer(ctx context.Context, id, message string) error
	// RemoveContainer removes an instance that is not Running, its root filesystem and its record. One that
	// is only Created may be removed when nothing else of its pod lives; else start it again.
	RemoveContainer(ctx context.Context, id string) error
}

// Layers tells how much of the machine's disk instances take.
type Layers interface {
	// LayerSize is what an instance's own part of its root filesystem takes; nothing for one that is
	// gone. It may take long.
	LayerSize(ctx context.Context, id string) (pod.Space, error)
}

// Images finds and fetches images.
type Images interface {
	// Resolve returns the image if it is present, ready to run; ErrNotFound if it is not.
	Resolve(ctx context.Context, ref string) (pod.Image, error)
	// Pull fetches the image and makes it ready to run. logins are texts of docker's config.json that count
	// before the machine's own credentials.
	Pull(ctx context.Context, ref string, logins ...[]byte) (pod.Image, error)
	// Pulling tells how far a pull of the image is that is under way here; false: there is none.
	Pulling(ref string) (pod.Progress, bool)
	// Show makes the files of an image visible, read-only, as a volume of a revision's, and returns where.
	// They are until the revision's data is removed.
	Show(ctx context.Context, image pod.Image, uid pod.UID, volume string) (path string, err error)
}

// ExecIO is where an exec'd process reads and writes.
type ExecIO struct {
	Stdin          io.Reader // nil: none
	Stdout, Stderr io.Writer
	// TTY gives the process a terminal; Stderr is then unused.
	TTY bool
	// Size is the terminal's at first; zero: not known.
	Size TermSize
	// Resize delivers the terminal's size whenever it changes; nil without TTY.
	Resize <-chan TermSize
}

// TermSize is a terminal's size in characters.
type TermSize struct{ Width, Height uint16 }

// Execer runs commands in running containers.
type Execer interface {
	// Exec runs cmd in the instance and waits; it returns the command's exit code. When ctx ends the
	// command is killed, and when nobody takes its output: then the error is that of Stdout or Stderr.
	Exec(ctx context.Context, id string, cmd []string, streams ExecIO) (int, error)
}

// Attacher reaches the standard input and the terminal of running instances. Their output is in their logs.
type Attacher interface {
	// OpenStdin opens the standard input of an instance whose container has one; several may at the same
	// time. Its end comes only where the container says stdinOnce and has no terminal, and then with the
	// last of them that is closed, also by the death of the process that opened it. ErrNoStdin: there is
	// none, or it has ended; ErrNotFound: the instance does not run.
	OpenStdin(ctx context.Context, id string) (io.WriteCloser, error)
	// ResizeTerminal gives the instance's terminal a size; without one it does nothing.
	ResizeTerminal(ctx context.Context, id string, size TermSize) error
}

// Data keeps, per revision of a pod, the manifest that it runs.
type Data interface {
	// SavePod keeps p as the manifest that its UID runs, atomically.
	SavePod(p *v1.Pod, owner string) error
	// LoadPod returns the manifest that a revision runs; ErrNotFound when none is kept.
	LoadPod(uid pod.UID) (*v1.Pod, error)
	// Note records what has been done to an instance and what was heard of it; Lister returns what was recorded
	// last, for as long as the instance is there. It outlives podrun. A revision or an instance that is gone
	// needs no notes.
	Note(uid pod.UID, id string, n pod.Notes) error
	// Evict records why a revision has to end though it would run on, for good; Evicted returns that, "" if it
	// has not.
	Evict(uid pod.UID, why string) error
	Evicted(uid pod.UID) (why string, err error)
	// SaveConditions keeps the revision's conditions as they are published; LoadConditions returns them.
	SaveConditions(uid pod.UID, conditions []v1.PodCondition) error
	LoadConditions(uid pod.UID) ([]v1.PodCondition, error)
	// RemoveData removes all that was kept for a revision, its volumes and logs too.
	RemoveData(ctx context.Context, key pod.Key, uid pod.UID) error
}

// Timeout bounds one mutation; a runtime that takes longer is treated as failed and asked again.
const Timeout = 2 * time.Minute
