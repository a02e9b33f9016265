package runtime

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// Resize holds what a Driver needs to resize an instance.
type Resize struct {
	ID        string
	Pod       *v1.Pod
	Container *v1.Container
	// CPUs are the CPUs to run on, in the kernel's format; "" if they do not change.
	CPUs string
	// Running are the resources that the pod's instances run with, by container, in the format of
	// pod.ResourcesOf: those of the instance itself, and others that have not been resized yet or cannot
	// be. If it is not known which ones it runs with, they are all there, separated by semicolons. The pod
	// must not have less.
	Running map[string]string
}

// Driver is a container engine. It stores nothing about pods except what the engine itself records:
// which instance belongs to which pod, and whether the instance runs. Package checkpointed
// implements the role interfaces of this package with a Driver and the pods' checkpoints.
//
// Every mutation may be repeated: it succeeds if the requested state already exists, or if the
// object is already removed.
type Driver interface {
	Notifier
	Images
	Execer
	Attacher
	Layers

	// ListContainers returns every instance that has podrun's labels, by pod. It sets ID, Name,
	// UID, Attempt, State and PID and, if the process has exited, ExitCode, FinishedAt, Reason and
	// Message. Reaped means less here than in pod.Container, because a Driver knows no recorded
	// exit: the instance exists but has no process: none runs, none has exited and none is prepared
	// to start; State is then Created. Package checkpointed adds the recorded exit. An
	// *UnknownError names the pods of which nothing is known. SandboxID is set also for an instance
	// that no checkpoint names.
	ListContainers(ctx context.Context) (map[pod.Key][]pod.Container, error)
	// InspectContainers is ListContainers for one pod. It returns the instances with the given IDs,
	// and other instances of the pod that the Driver knows.
	InspectContainers(ctx context.Context, key pod.Key, ids []string) ([]pod.Container, error)

	// PrepareSandbox returns how the sandbox will be created, except its ID. It creates nothing.
	PrepareSandbox(p *v1.Pod) (pod.SandboxDetails, error)
	// CreateSandbox creates the sandbox, whose ID has never been used before, and returns it with
	// its addresses. If it fails it may leave something, which RemoveSandbox removes.
	CreateSandbox(ctx context.Context, p *v1.Pod, s pod.Sandbox) (pod.Sandbox, error)
	// SandboxReady reports whether everything that the sandbox pinned still exists.
	SandboxReady(s pod.Sandbox) bool
	// YieldPorts implements YieldPorts of Sandboxes.
	YieldPorts(ctx context.Context, id string) error
	// RemoveSandbox releases everything that the sandbox held or that an interrupted CreateSandbox
	// left. last means that the revision has completed and has no other one: it then loses its cgroup, unless
	// processes are in it.
	RemoveSandbox(ctx context.Context, key pod.Key, s pod.Sandbox, last bool) error

	// StartContainer implements StartContainer of Containers. It returns ErrCutOff or the error of
	// ctx if it does not know that nothing of the instance is left.
	StartContainer(ctx context.Context, s Start) error
	// ResizeContainer implements ResizeContainer of Containers.
	ResizeContainer(ctx context.Context, r Resize) error
	// SignalContainer implements SignalContainer of Containers; signal is never empty.
	SignalContainer(ctx context.Context, id, signal string) error
	// KillRemains kills the processes that may still run of an instance for which the engine knows
	// no process any more, or which it does not know itself. It returns when none runs.
	KillRemains(ctx context.Context, key pod.Key, c pod.Container) error
	// ReapContainer frees what an exited instance held, except its root filesystem and its record.
	// The caller has recorded the exit.
	ReapContainer(ctx context.Context, id string) error
	// RemoveContainer implements RemoveContainer of Containers. begun is the time at which a start
	// of the instance began that was interrupted before the process ran; zero if the process ran.
	RemoveContainer(ctx context.Context, c pod.Container, begun time.Time) error

	// RemovePod removes what the engine has of a revision other than sandboxes and instances, such
	// as its cgroups.
	RemovePod(ctx context.Context, key pod.Key, uid pod.UID) error
	// Sweep removes what interrupted starts and removals left and what no list shows. known reports
	// whether a checkpoint names the sandbox.
	Sweep(ctx context.Context, known func(sandboxID string) bool) error
}
