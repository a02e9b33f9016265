// Package runtime defines the port between podrun's decisions and whatever runs containers: small
// role interfaces for the code that works on pods (Lister, Notifier, Sandboxes, Containers, Images,
// ...), the contract of each, and the errors that they return. Below them it defines Driver, the
// interface of a container engine.
//
// It implements nothing. Package checkpointed implements the role interfaces with a Driver and the
// pods' checkpoints; packages containerd and fake each implement a Driver; package runtimetest is
// the conformance suite for this contract.
//
// Every mutation may be repeated: it succeeds if the requested state already exists, or if the
// object is already removed.
//
// Begin reading at Containers and Driver.
package runtime

import (
	"context"
	"io"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// Lister reads what exists. It never returns a partial answer as a complete one: after an error
// nothing is known, and after an *UnknownError of List nothing is known about the pods that the
// error names.
type Lister interface {
	// List returns every pod of which anything exists. It returns only podrun's own pods.
	List(ctx context.Context) ([]pod.Observed, error)
	// Inspect returns what exists of one pod. If nothing exists, it returns an empty Observed that
	// has only its Key.
	Inspect(ctx context.Context, key pod.Key) (pod.Observed, error)
}

// Wakeup reports that a pod may have changed. It carries no state: the receiver inspects the pod.
type Wakeup struct {
	Key pod.Key
	// All means that any pod may have changed, as after a gap in the stream.
	All bool
	// At is the time of the event as reported by the runtime, or zero if the runtime does not
	// report it. Use it for measurements only.
	At time.Time
	// Echo means that an action of podrun itself may have caused the event. An inspection that is
	// newer than the event already shows its effect, so the receiver can ignore the wakeup.
	Echo bool
}

// Notifier delivers the runtime's event stream as wakeups.
type Notifier interface {
	// Wakeups delivers wakeups until ctx ends or the stream breaks; then it closes the channel. The
	// caller subscribes again. Wakeups may be repeated and may be for pods that did not change.
	Wakeups(ctx context.Context) (<-chan Wakeup, error)
}

// Sandboxes creates and removes sandboxes: what the containers of a pod share.
type Sandboxes interface {
	// CreateSandbox pins the pod's namespaces and connects its network. A repeated call with the
	// same attempt replaces what an interrupted call left. A *ReasonError with
	// ReasonHostPortConflict means that another pod or a process of the host uses one of the host
	// ports. Host ports of other revisions of the same pod are taken over.
	CreateSandbox(ctx context.Context, p *v1.Pod, attempt int) error
	// YieldPorts gives the host ports of a sandbox whose pod is being terminated to that of another pod with which
	// it shares them (pod.UpdateGroup), if there is one: new connections are that pod's from then on.
	YieldPorts(ctx context.Context, id string) error
	// RemoveSandbox releases everything that the sandbox held, including its addresses. ended is not nil if the pod
	// has completed. With its last sandbox it loses its cgroup, unless processes are in it, and then ended is called:
	// only when that has succeeded is the sandbox gone.
	RemoveSandbox(ctx context.Context, id string, ended func(context.Context) error) error
}

// Start holds what StartContainer needs in addition to the pod.
type Start struct {
	Pod               *v1.Pod
	Container         *v1.Container
	Sandbox           pod.Sandbox
	Attempt           int
	Backoff           int
	RestartGeneration int
	// Image is the resolved image to run, as returned by Images.
	Image pod.Image
	// VolumeImages are the IDs of the images that Mounts has as volumes, by volume name.
	VolumeImages map[string]string
	// CPUs are the CPUs to run on, in the kernel's format; "" if all.
	CPUs string
	// Env holds the container's own variables, resolved. The container's command and arguments may
	// refer to them.
	Env []pod.Variable
	// Mounts are in mount order. Their sources on the host are checked and ready.
	Mounts []pod.Mount
	// ID is the ID of the instance. It has never been used before and is not used again. Callers of
	// Containers leave it empty; a Driver receives it.
	ID string
	// Running are what the pod's instances run with; see Resize. A Driver receives it.
	Running map[string]string
	// Oversized is called by a Driver before Started, maybe again and again, if the pod has to keep a memory limit
	// for now that is larger than it should be. A resize of the instance makes up for it.
	Oversized func() error
	// Started is called by a Driver when the instance has been created, just before its process is
	// started, with the user of the process in the format of pod.UserOf. If it returns an error, the
	// Driver does not start the process.
	Started func(user string) error
}

// Containers acts on single instances. Instance IDs are those that Lister returned.
type Containers interface {
	// StartContainer creates a new instance with a fresh root filesystem and runs it. After a
	// *StartError the instance exists, is Exited and counts as an attempt; after any other error
	// there is no instance.
	StartContainer(ctx context.Context, s Start) error
	// ResizeContainer sets the CPU and memory of a running instance, and of its pod, to the values
	// in the manifest, and puts it on the CPUs, which are in the kernel's format, unless they are "". It
	// ignores an instance that does not run. A memory limit below the memory in use is an error and never
	// kills a process.
	ResizeContainer(ctx context.Context, id string, p *v1.Pod, c *v1.Container, cpus string) error
	// SignalContainer sends a signal to the main process of the instance; it sends KILL to all of
	// its processes.
	SignalContainer(ctx context.Context, id string, signal string) error
	// ReapContainer records the exit of an Exited instance durably and frees what the instance
	// held, except its root filesystem and its record. message is recorded as the instance's
	// termination message unless the instance wrote one itself; "" means none.
	ReapContainer(ctx context.Context, id, message string) error
	// RemoveContainer removes an instance that is not Running, with its root filesystem and its
	// record. An instance that is only Created may be removed when nothing else of its pod is
	// running; otherwise start it again.
	RemoveContainer(ctx context.Context, id string) error
}

// Layers measures the disk space that instances use.
type Layers interface {
	// LayerSize returns the size of the instance's own, writable part of its root filesystem, and a
	// zero Space for an instance that does not exist. It may take long.
	LayerSize(ctx context.Context, id string) (pod.Space, error)
}

// Images finds and pulls images.
type Images interface {
	// Resolve returns the image if it is present, ready to run, and ErrNotFound if it is not.
	Resolve(ctx context.Context, ref string) (pod.Image, error)
	// Pull fetches the image and makes it ready to run. logins are the contents of Docker
	// config.json files, which take precedence over the credentials of the node.
	Pull(ctx context.Context, ref string, logins ...[]byte) (pod.Image, error)
	// RegistryDigest returns the digest of what the registry has under the name ref now. It fetches nothing but that.
	RegistryDigest(ctx context.Context, ref string, logins ...[]byte) (string, error)
	// Pulling returns the progress of a pull of the image in this process; false if there is no
	// such pull.
	Pulling(ref string) (pod.Progress, bool)
	// Show mounts the files of an image read-only, as a volume of a revision, and returns the path.
	// The mount exists until RemoveData removes the data of the revision.
	Show(ctx context.Context, image pod.Image, uid pod.UID, volume string) (path string, err error)
}

// ExecIO holds the streams and the terminal settings of an exec'd process.
type ExecIO struct {
	Stdin          io.Reader // nil: none
	Stdout, Stderr io.Writer
	// Started is called once the process runs, unless it is nil. A start takes long in a container that
	// has used up its share of a processor.
	Started func()
	// TTY gives the process a terminal. Stderr is then unused.
	TTY bool
	// Size is the initial size of the terminal; zero if it is not known.
	Size TermSize
	// Resize delivers each new size of the terminal; nil without TTY.
	Resize <-chan TermSize
}

// TermSize is the size of a terminal in characters.
type TermSize struct{ Width, Height uint16 }

// Execer runs commands in running containers.
type Execer interface {
	// Exec runs cmd in the instance, waits for it and returns its exit code. The command is killed
	// when ctx ends, and when writing its output to Stdout or Stderr fails; Exec then returns the
	// error of that writer.
	Exec(ctx context.Context, id string, cmd []string, streams ExecIO) (int, error)
}

// Attacher opens the standard input and resizes the terminal of running instances. Their output is
// in their logs.
type Attacher interface {
	// OpenStdin opens the standard input of an instance whose container has one. Several writers
	// may have it open at the same time. The process sees the end of its input only if its
	// container has stdinOnce and no terminal, and then when the last writer closes it or when the
	// process of that writer dies. It returns ErrNoStdin if there is no standard input or if it has
	// been closed, and ErrNotFound if the instance does not run.
	OpenStdin(ctx context.Context, id string) (io.WriteCloser, error)
	// ResizeTerminal sets the size of the instance's terminal. It does nothing for an instance
	// without a terminal.
	ResizeTerminal(ctx context.Context, id string, size TermSize) error
}

// Data stores, per pod revision, the manifest that it runs and what must survive a restart of
// podrun.
type Data interface {
	// SavePod stores p atomically as the manifest that its UID runs.
	SavePod(p *v1.Pod, owner string) error
	// LoadPod returns the manifest that a revision runs, and ErrNotFound if none is stored.
	LoadPod(uid pod.UID) (*v1.Pod, error)
	// Note records what has been done to an instance and what was observed of it. Lister returns
	// the last recorded notes as long as the instance exists. Notes survive a restart of podrun.
	// Note ignores a revision or an instance that no longer exists.
	Note(uid pod.UID, id string, n pod.Notes) error
	// Evict records, permanently, why a revision has to end although it would continue to run.
	// Evicted returns that reason, or "" if the revision is not evicted.
	Evict(uid pod.UID, why string) error
	Evicted(uid pod.UID) (why string, err error)
	// Interrupt records, permanently, that a shutdown of the machine terminates a revision that then has not completed,
	// whatever its processes return. Interrupted reports that.
	Interrupt(uid pod.UID) error
	Interrupted(uid pod.UID) (bool, error)
	// SaveConditions stores the revision's conditions as they are published. LoadConditions returns
	// them.
	SaveConditions(uid pod.UID, conditions []v1.PodCondition) error
	LoadConditions(uid pod.UID) ([]v1.PodCondition, error)
	// SaveResult stores the result of a revision durably, so that the next serve has it although RemoveData removes the
	// data. It ignores a revision that no longer exists.
	SaveResult(uid pod.UID) error
	// RemoveEmptyDirs removes the emptyDir volumes of a revision, none of which may be mounted or in use, before its
	// other data.
	RemoveEmptyDirs(ctx context.Context, uid pod.UID) error
	// RemoveData removes all stored data of a revision, including its volumes and logs.
	RemoveData(ctx context.Context, key pod.Key, uid pod.UID) error
}

// Timeout bounds one mutation. The caller treats a mutation that takes longer as failed and repeats
// it.
const Timeout = 2 * time.Minute
