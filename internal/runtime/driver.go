package runtime

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// Driver is a container engine. It keeps nothing about pods but what the engine itself has: which instance is of
// which pod, and whether it runs. Package checkpointed makes the rest of the port of a Driver and the pods'
// checkpoints.
//
// Every mutation may be repeated: what is already so, or already gone, is success.
type Driver interface {
	Notifier
	Images
	Execer
	Attacher
	Layers

	// ListContainers returns every instance with podrun's labels, by pod: ID, Name, UID, Attempt, State, PID and, of one
	// whose process has ended, ExitCode, FinishedAt, Reason and Message. Reaped says that there is an instance but
	// no process of it, neither running nor ended nor prepared; its State is Created then. An *UnknownError names the
	// pods of which nothing is known. SandboxID is that of an instance that no checkpoint names too.
	ListContainers(ctx context.Context) (map[pod.Key][]pod.Container, error)
	// InspectContainers is ListContainers for one pod: it returns the instances with these IDs, and others of the pod
	// that it knows of.
	InspectContainers(ctx context.Context, key pod.Key, ids []string) ([]pod.Container, error)

	// PrepareSandbox returns how the sandbox will be made, but for its ID, and makes nothing.
	PrepareSandbox(p *v1.Pod) (pod.SandboxDetails, error)
	// CreateSandbox makes the sandbox, whose ID was never used before, and returns it with its addresses. When it
	// fails it may leave something that RemoveSandbox removes.
	CreateSandbox(ctx context.Context, p *v1.Pod, s pod.Sandbox) (pod.Sandbox, error)
	// SandboxReady reports that all that the sandbox pinned is still there.
	SandboxReady(s pod.Sandbox) bool
	// RemoveSandbox releases all that the pod's sandbox held, or that an interrupted CreateSandbox left.
	RemoveSandbox(ctx context.Context, key pod.Key, s pod.Sandbox) error

	// StartContainer is that of Containers. It returns an error that is ErrCutOff, or the context's, when it
	// does not know that nothing is left of the instance.
	StartContainer(ctx context.Context, s Start) error
	// ResizeContainer is that of Containers.
	ResizeContainer(ctx context.Context, id string, p *v1.Pod, c *v1.Container) error
	// SignalContainer is that of Containers; signal is never empty.
	SignalContainer(ctx context.Context, id, signal string) error
	// KillRemains kills what may run of an instance of which the engine knows no process any more, and returns when
	// nothing runs.
	KillRemains(ctx context.Context, id string) error
	// ReapContainer frees what an ended instance held, but for its root filesystem and record. Its exit has been
	// recorded.
	ReapContainer(ctx context.Context, id string) error
	// RemoveContainer is that of Containers. begun is when a start of the instance began that was cut off before its
	// process ran; zero: its process ran.
	RemoveContainer(ctx context.Context, c pod.Container, begun time.Time) error

	// RemovePod removes what the engine has of a revision beside sandboxes and instances, such as its cgroups.
	RemovePod(ctx context.Context, key pod.Key, uid pod.UID) error
	// Sweep removes what starts and removals that were cut off left, and no list shows. known reports that a checkpoint
	// names the sandbox.
	Sweep(ctx context.Context, known func(sandboxID string) bool) error
}
