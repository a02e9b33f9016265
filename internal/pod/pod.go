// Package pod holds podrun's nouns: what a pod is called, what was seen of it on the machine, and what it has there.
// It is data only. It does not own what is wanted (that is a v1.Pod) and knows no runtime.
package pod

import (
	"cmp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Key names a pod. Its name is the full one, with the node's name as suffix. A worker serves one Key,
// whatever revisions come and go under it.
type Key struct{ Namespace, Name string }

// Compare orders by namespace, then by name.
func (k Key) Compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Namespace, other.Namespace), cmp.Compare(k.Name, other.Name))
}

// KeyOf returns the key of p.
func KeyOf(p *v1.Pod) Key { return Key{Namespace: p.Namespace, Name: p.Name} }

func (k Key) String() string { return k.Namespace + "/" + k.Name }

// UID is a revision of a pod: it changes with every edit that needs new containers.
type UID = types.UID

// State is what a container was seen to be.
type State int

// The states of a container. A container that was never seen has none.
const (
	// Unknown: the runtime could not say. Nothing may be concluded from it.
	Unknown State = iota
	// Created: made but never started; its process has not run.
	Created
	Running
	Exited
)

func (s State) String() string {
	return [...]string{"unknown", "created", "running", "exited"}[s]
}

// MarshalText writes the state by its name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a state's name; a foreign one is Unknown.
func (s *State) UnmarshalText(text []byte) error {
	*s = Unknown
	for _, known := range []State{Created, Running, Exited} {
		if known.String() == string(text) {
			*s = known
		}
	}
	return nil
}

// Container is one instance of a pod's container as seen on the machine.
type Container struct {
	ID        string
	Name      string
	UID       UID
	SandboxID string
	// Attempt is the restart number: 0 for the first instance of this name under this UID.
	Attempt int
	// Backoff is the step of the crash back-off that this instance was started at; 0 means none.
	Backoff int
	// RestartGeneration is how often all containers of the pod had been restarted together when this instance was started.
	RestartGeneration int `json:"Round,omitzero"`
	// Boot is the kernel's boot id under which the instance was made.
	Boot  string
	State State
	// PID is the host's process id while Running, else 0.
	PID int
	// StartedAt is when the instance was started, or was tried to be; zero while Created.
	StartedAt, FinishedAt time.Time
	// ExitCode, Reason and Message are set when Exited. Reason is empty where only the code is known.
	ExitCode int
	Reason   string
	Message  string
	// Grace is the termination grace period that the instance was started with.
	Grace time.Duration
	// Image is the reference that the manifest gave, ImageID the digest that it stood for.
	Image, ImageID string
	// Sidecar is the place among the pod's init containers, from 1, of an instance that runs as a sidecar;
	// 0 for any other container.
	Sidecar int
	// PreStop says that a hook is to be run before the instance is sent its stop signal.
	PreStop bool
	// StopSignal is what the manifest or the image asks for, as SIGTERM is spelled; "" is SIGTERM.
	StopSignal string `json:",omitzero"`
	// Resources is what of CPU and memory the instance runs with, as ResourcesOf spells it.
	Resources string
	// Reaped says that the exit is recorded durably and that no process, mount or shim is held any more.
	Reaped bool
	// Stray says that no checkpoint names the instance although it carries podrun's labels: the checkpoint was
	// lost, or somebody else made the instance. It belongs to no revision.
	Stray bool `json:",omitzero"`
	// Notes is what is kept of its course.
	Notes Notes `json:",omitzero"`
}

// Sandbox is a pod's pinned namespaces and network as seen on the machine.
type Sandbox struct {
	ID  string
	UID UID
	// Attempt counts the sandboxes made for this UID, from 0.
	Attempt int
	// Boot is the kernel's boot id under which the sandbox was made; it ends with that boot.
	Boot string
	// Ready says that the sandbox is complete and that all that it pinned is still there.
	Ready     bool `json:"-"`
	CreatedAt time.Time
	// IPs are the pod's addresses, IPv4 first; empty with host networking.
	IPs []string `json:",omitempty"`
	// Details is what whoever made the sandbox needs to use and to remove it.
	Details SandboxDetails `json:",omitzero"`
}

// SandboxDetails are how a sandbox was made. They are kept with it because the pod's manifest and podrun's flags
// may be others by the time it is used or removed.
type SandboxDetails struct {
	// Complete says that the sandbox was made to its end.
	Complete bool `json:",omitzero"`
	// HostNetwork and HostIPC say that the pod has the host's namespaces.
	HostNetwork bool `json:",omitzero"`
	HostIPC     bool `json:",omitzero"`
	// Shm says that the pod's containers share memory that is mounted for them.
	Shm bool `json:",omitzero"`
	// FirstUser is the first of the host's user IDs that are the pod's own; 0: its users are the host's.
	FirstUser uint32 `json:",omitzero"`
	// Systemd says that systemd makes the pod's cgroups.
	Systemd bool `json:",omitzero"`
	// PauseParent is the cgroup below which the first process of the pod's process namespace has one of its own,
	// named after the sandbox's ID; "": the pod has no process namespace.
	PauseParent string `json:",omitzero"`
	// PausePID and PauseStart identify that process: its ID and its start in the kernel's ticks since boot.
	PausePID   int    `json:",omitzero"`
	PauseStart uint64 `json:",omitzero"`
	// Group is what the containers' shim is named after; "": the sandbox's ID. Sandboxes of former versions of
	// podrun have one.
	Group string `json:",omitzero"`
}

// Observed is all that was seen of one pod, of every revision.
type Observed struct {
	Key        Key
	Sandboxes  []Sandbox   // newest first
	Containers []Container // newest first
	// Data are the revisions that have a checkpoint, newest first.
	Data []UID
	// Remembered are the newest instances of each container that the checkpoints have, by revision. Mostly
	// they are among Containers too; one that is not was removed behind podrun's back.
	Remembered []Container
	// Owner tells which kind of run started the newest revision: "serve" or "once".
	Owner string
	// Gone are the last sandboxes that revisions had and have no more, for their addresses. They are what the
	// relister remembers, and no runtime tells.
	Gone []Sandbox
}

// Empty reports that nothing of the pod is left.
func (o Observed) Empty() bool {
	return len(o.Sandboxes) == 0 && len(o.Containers) == 0 && len(o.Data) == 0
}

// Sort puts the newest first: by revision, in the order of Data, then by the number of the attempt. No clock is
// asked, because it may have been set.
func (o *Observed) Sort() {
	rank := func(uid UID) int {
		if i := slices.Index(o.Data, uid); i >= 0 {
			return i
		}
		return len(o.Data)
	}
	slices.SortFunc(o.Sandboxes, func(a, b Sandbox) int {
		return cmp.Or(cmp.Compare(rank(a.UID), rank(b.UID)), cmp.Compare(b.Attempt, a.Attempt), cmp.Compare(a.ID, b.ID))
	})
	slices.SortFunc(o.Containers, func(a, b Container) int {
		return cmp.Or(cmp.Compare(rank(a.UID), rank(b.UID)), cmp.Compare(b.Attempt, a.Attempt),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
}

// Newest returns the instance of the named container with the highest attempt under uid.
func (o Observed) Newest(uid UID, name string) (Container, bool) {
	var best Container
	found := false
	for _, c := range o.Containers {
		if c.UID == uid && c.Name == name && !c.Stray && (!found || c.Attempt > best.Attempt) {
			best, found = c, true
		}
	}
	return best, found
}

// Last returns what is known of the newest instance of the named container under uid. With lost, it is
// not there any more: it was removed by somebody else, and what is returned is what was noted down.
func (o Observed) Last(uid UID, name string) (last Container, lost, found bool) {
	last, found = o.Newest(uid, name)
	for _, c := range o.Remembered {
		if c.UID == uid && c.Name == name && (!found || c.Attempt > last.Attempt) {
			last, lost, found = c, true, true
		}
	}
	return last, lost, found
}

// Split parts what belongs to uid from what belongs to other revisions.
func (o Observed) Split(uid UID) (mine, others Observed) {
	mine, others = Observed{Key: o.Key, Owner: o.Owner}, Observed{Key: o.Key, Owner: o.Owner}
	side := func(u UID) *Observed {
		if u == uid {
			return &mine
		}
		return &others
	}
	for _, s := range o.Sandboxes {
		side(s.UID).Sandboxes = append(side(s.UID).Sandboxes, s)
	}
	for _, s := range o.Gone {
		side(s.UID).Gone = append(side(s.UID).Gone, s)
	}
	for _, c := range o.Containers {
		of := side(c.UID)
		if c.Stray {
			of = &others
		}
		of.Containers = append(of.Containers, c)
	}
	for _, c := range o.Remembered {
		side(c.UID).Remembered = append(side(c.UID).Remembered, c)
	}
	for _, u := range o.Data {
		side(u).Data = append(side(u).Data, u)
	}
	return mine, others
}

// Event is something that happened to a pod, for people to read. Nothing that podrun does rests on it.
type Event struct {
	// Key is the pod's; the zero Key stands for the node.
	Key       Key
	UID       UID
	Container string // empty: the pod as a whole
	// Warning: it should not be so.
	Warning bool
	// Reason is Kubernetes' word where it has one: Pulled, Started, BackOff, …
	Reason, Message string
}

// IDOf is the instance's ID in a status' containerID.
func IDOf(containerID string) string {
	_, id, _ := strings.Cut(containerID, "://")
	return id
}

// Instance names one run of a container: what its logs are kept under.
type Instance struct {
	// ID tells it from another one of the same attempt, as when what was kept of the pod is lost; "": not known.
	ID        string
	Key       Key
	UID       UID
	Container string
	Attempt   int
}
