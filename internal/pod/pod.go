// Package pod defines podrun's basic data types: the identity of a pod ([Key], [UID]), what was
// observed of it on the machine ([Observed], [Container], [Sandbox]), and what is derived from its
// spec, such as its QoS class, host ports and storage limits.
//
// The package is pure: data, and functions that derive data from a v1.Pod by Kubernetes' rules. What
// is wanted of a pod is a v1.Pod, not a type of this package, and the package knows no container
// runtime. Begin reading at [Observed].
package pod

import (
	"cmp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Key identifies a pod by namespace and full name, which has the node's name as suffix. One worker
// serves one Key, whatever revisions of the pod come and go.
type Key struct{ Namespace, Name string }

// Compare orders keys by namespace, then by name.
func (k Key) Compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Namespace, other.Namespace), cmp.Compare(k.Name, other.Name))
}

// KeyOf returns the key of p.
func KeyOf(p *v1.Pod) Key { return Key{Namespace: p.Namespace, Name: p.Name} }

// String returns NAMESPACE/NAME.
func (k Key) String() string { return k.Namespace + "/" + k.Name }

// UID identifies a revision of a pod: it changes with every edit that needs new containers.
type UID = types.UID

// State is the observed state of a container.
type State int

// The states of a container. A container that was never observed has none.
const (
	// Unknown means that the runtime could not report the state. No conclusion may be drawn from
	// it.
	Unknown State = iota
	// Created means that the container was created but never started; its process has not run.
	Created
	Running
	Exited
)

// String returns the state's name in lower case.
func (s State) String() string {
	return [...]string{"unknown", "created", "running", "exited"}[s]
}

// MarshalText returns the state's name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses a state's name; any other text is Unknown.
func (s *State) UnmarshalText(text []byte) error {
	*s = Unknown
	for _, known := range []State{Created, Running, Exited} {
		if known.String() == string(text) {
			*s = known
		}
	}
	return nil
}

// Container is one instance of a pod's container as observed on the machine.
type Container struct {
	ID        string
	Name      string
	UID       UID
	SandboxID string
	// Attempt is the restart number: 0 for the first instance of this name under this UID.
	Attempt int
	// Backoff is the crash back-off step at which this instance was started; 0 means none.
	Backoff int
	// RestartGeneration is how often all containers of the pod had been restarted together when
	// this instance was started.
	RestartGeneration int `json:"Round,omitzero"`
	// Boot is the kernel's boot ID under which the instance was created.
	Boot  string
	State State
	// PID is the process ID on the host while the instance is Running, else 0.
	PID int
	// StartedAt is when the start of the instance succeeded or was tried; zero while Created.
	StartedAt time.Time
	Exit
	Termination
	// Image is the reference in the manifest, ImageID the digest that it resolved to.
	Image, ImageID string
	// Sidecar is the position among the pod's init containers, from 1, of an instance that runs as
	// a sidecar; 0 for any other container.
	Sidecar int
	Process
	// Reaped reports that the exit is recorded durably and that the instance holds no process,
	// mount or shim any more.
	Reaped bool
	// Stray reports that no checkpoint names the instance although it carries podrun's labels:
	// either the checkpoint was lost, or something else created the instance. It belongs to no
	// revision.
	Stray bool `json:",omitzero"`
	// Notes is what the checkpoint keeps of the instance's history.
	Notes Notes `json:",omitzero"`
}

// Process is what an instance's first process was started with.
type Process struct {
	// Resources is the CPU and memory that the instance runs with, in the format of ResourcesOf.
	Resources string
	// Resizing has ";" and such a text for each resize that may have been done since, or is still due; "" if none.
	Resizing string `json:",omitzero"`
	// CPUs are the CPUs that it was put on, in the kernel's format; "" if it never was.
	CPUs string `json:",omitzero"`
	// User is the user of the process, in the format of UserOf; "" if it is not known, as long as
	// the instance is Created, for example.
	User string `json:",omitzero"`
	// VolumeImages are the images that it has as volumes, in the format of VolumeImagesOf.
	VolumeImages string `json:",omitzero"`
}

// Exit is how an instance ended; the zero value until it has Exited.
type Exit struct {
	FinishedAt time.Time
	ExitCode   int
	// Reason is empty if only the code is known.
	Reason  string
	Message string
}

// Termination is how an instance is terminated, as its manifest said when it was started.
type Termination struct {
	// Grace is the termination grace period.
	Grace time.Duration
	// PreStop reports that a preStop hook has to run before the instance is sent its stop signal.
	PreStop bool
	// StopSignal is the stop signal of the manifest or the image config, in the form SIGTERM; ""
	// means SIGTERM.
	StopSignal string `json:",omitzero"`
}

// Sandbox is a pod's pinned namespaces and network as observed on the machine.
type Sandbox struct {
	ID  string
	UID UID
	// Attempt counts the sandboxes created for this UID, from 0.
	Attempt int
	// Boot is the kernel's boot ID under which the sandbox was created; a sandbox does not survive
	// a reboot.
	Boot string
	// Ready reports that the sandbox is complete and that everything it pinned still exists.
	Ready     bool `json:"-"`
	CreatedAt time.Time
	// IPs are the pod's addresses, IPv4 first; empty with host networking.
	IPs []string `json:",omitempty"`
	// Details is what the creator of the sandbox needs to use and to remove it.
	Details SandboxDetails `json:",omitzero"`
}

// SandboxDetails records how a sandbox was created. It is stored with the sandbox because the pod's
// manifest and podrun's flags may have changed when the sandbox is used or removed.
type SandboxDetails struct {
	// Complete reports that the creation of the sandbox was completed.
	Complete bool `json:",omitzero"`
	// HostNetwork and HostIPC report that the pod uses the host's network and IPC namespaces.
	HostNetwork bool `json:",omitzero"`
	HostIPC     bool `json:",omitzero"`
	// Shm reports that the pod's containers share a memory file system (/dev/shm) that is mounted
	// for them.
	Shm bool `json:",omitzero"`
	// FirstUser is the first host user ID of the range that the pod's user namespace maps to; 0 if
	// the pod uses the host's user IDs.
	FirstUser uint32 `json:",omitzero"`
	// Systemd reports that systemd creates the pod's cgroups.
	Systemd bool `json:",omitzero"`
	// PauseParent is the parent of the cgroup of the first process in the pod's PID namespace; that
	// cgroup is named after the sandbox ID. "" if the pod has no PID namespace of its own.
	PauseParent string `json:",omitzero"`
	// PausePID and PauseStart identify that process: its process ID and its start time in kernel
	// ticks since boot.
	PausePID   int    `json:",omitzero"`
	PauseStart uint64 `json:",omitzero"`
	// Group is the name of the containers' shim group; "" means the sandbox ID. Sandboxes that
	// older versions of podrun created have one.
	Group string `json:",omitzero"`
}

// Observed is everything that was observed of one pod, in all its revisions.
type Observed struct {
	Key        Key
	Sandboxes  []Sandbox   // newest first
	Containers []Container // newest first
	// Data lists the revisions that have a checkpoint, newest first.
	Data []UID
	// Remembered are the newest instances of each container in the checkpoints, by revision.
	// Normally they are in Containers too; one that is not was removed by something other than
	// podrun.
	Remembered []Container
	// Owner is the command that started the newest revision: "serve" or "once".
	Owner string
	// Gone are the last sandboxes of revisions that have none any more, for their addresses.
	Gone []Sandbox
	// At is when the inspection began that has seen it; zero if that is not known.
	At time.Time
}

// Empty reports whether nothing of the pod is left.
func (o Observed) Empty() bool {
	return len(o.Sandboxes) == 0 && len(o.Containers) == 0 && len(o.Data) == 0
}

// Sort puts the newest first: by revision, in the order of Data, then by attempt. It does not
// compare times, because the clock may have been changed.
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

// SandboxID returns the ID of the newest sandbox under uid; "" if there is none.
func (o Observed) SandboxID(uid UID) string {
	for _, s := range o.Sandboxes {
		if s.UID == uid {
			return s.ID
		}
	}
	return ""
}

// Newest returns the instance of the named container with the highest attempt under uid. It ignores
// stray instances.
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

// Last returns the newest instance of the named container under uid, including those that exist
// only in the checkpoints. If lost is true, the instance does not exist any more: something else
// removed it, and last is what the checkpoint recorded.
func (o Observed) Last(uid UID, name string) (last Container, lost, found bool) {
	last, found = o.Newest(uid, name)
	for _, c := range o.Remembered {
		if c.UID == uid && c.Name == name && (!found || c.Attempt > last.Attempt) {
			last, lost, found = c, true, true
		}
	}
	return last, lost, found
}

// Split separates what belongs to uid from what belongs to other revisions. Stray instances are
// among the others.
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

// Event is something that happened to a pod, for people to read. podrun makes no decision by
// events.
type Event struct {
	// Kind is the kind of what Key names, if that is no pod.
	Kind string
	// Key is the pod's key; the zero Key stands for the node.
	Key       Key
	UID       UID
	Container string // empty for the pod as a whole
	Init      bool   // whether Container is an init container
	// Warning reports that the event is a problem.
	Warning bool
	// Reason is Kubernetes' reason where it has one: Pulled, Started, BackOff, …
	Reason, Message string
}

// IDOf returns the instance ID in the containerID of a container status.
func IDOf(containerID string) string {
	_, id, _ := strings.Cut(containerID, "://")
	return id
}

// Instance identifies one run of a container; its logs are stored under it.
type Instance struct {
	// ID distinguishes instances with the same attempt, which exist after the pod's checkpoint was
	// lost; "" if it is not known.
	ID        string
	Key       Key
	UID       UID
	Container string
	Attempt   int
}

// Instance returns the identity of c, which is an instance of the pod key.
func (c Container) Instance(key Key) Instance {
	return Instance{ID: c.ID, Key: key, UID: c.UID, Container: c.Name, Attempt: c.Attempt}
}
