// Package checkpoint keeps what podrun must know about each revision of a pod and cannot ask anybody: the manifest
// that it runs, its sandboxes and instances with their IDs, how they ended, and what has been done to them. A
// revision has one file, <root>/pods/<uid>/checkpoint.json, which is replaced as a whole. Only the process that has
// the pod's owner lock writes it; everybody may read it.
//
// The package does not know what runs: that is asked of the container runtime, and package checkpointed puts both
// together. It does not make volumes or logs; it removes a revision's directory with all that is in it.
//
// Begin reading at Checkpoint and Store.
package checkpoint

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// Version is that of the file's format. A file of a later version is not read.
const Version = 1

// Checkpoint is what is kept of one revision of a pod. A Checkpoint that a Store has returned is never changed.
type Checkpoint struct {
	Version int `json:"version"`
	// Sequence orders the revisions of a pod: that of a later revision is higher. No clock is asked.
	Sequence int64 `json:"sequence"`
	// Owner is the kind of run that the pod belongs to: "serve" or "once".
	Owner string `json:"owner"`
	// Pod is the manifest that the revision runs, with the resources that it has been given.
	Pod *v1.Pod `json:"pod"`
	// Sandboxes are those that were made, or are about to be made, and have not been removed.
	Sandboxes []pod.Sandbox `json:"sandboxes,omitempty"`
	// Instances are those that were started, or are about to be. State is Created from before the instance is
	// made, Running from just before its process is started, and Exited once its end is recorded. The newest
	// one of each container stays when it is removed from the runtime.
	Instances []pod.Container `json:"instances,omitempty"`
	// Evicted is why the pod had to end though it would have run on; "": it did not have to.
	Evicted string `json:"evicted,omitempty"`
	// Conditions are the pod's conditions as they were published last, for their transition times.
	Conditions []v1.PodCondition `json:"conditions,omitempty"`
}

// Key returns the key of the checkpoint's pod.
func (c *Checkpoint) Key() pod.Key { return pod.KeyOf(c.Pod) }

// UID returns the revision's UID.
func (c *Checkpoint) UID() pod.UID { return c.Pod.UID }

// Clone returns a copy whose lists may be changed. The manifest is shared: it is replaced, never changed.
func (c *Checkpoint) Clone() *Checkpoint {
	out := *c
	out.Sandboxes = slices.Clone(c.Sandboxes)
	out.Instances = slices.Clone(c.Instances)
	out.Conditions = slices.Clone(c.Conditions)
	return &out
}

// Sandbox returns the sandbox with that ID, nil if there is none. It may be changed if c may.
func (c *Checkpoint) Sandbox(id string) *pod.Sandbox {
	for i := range c.Sandboxes {
		if c.Sandboxes[i].ID == id {
			return &c.Sandboxes[i]
		}
	}
	return nil
}

// Instance returns the instance with that ID, nil if there is none. It may be changed if c may.
func (c *Checkpoint) Instance(id string) *pod.Container {
	for i := range c.Instances {
		if c.Instances[i].ID == id {
			return &c.Instances[i]
		}
	}
	return nil
}

// DropSandbox removes the sandbox with that ID.
func (c *Checkpoint) DropSandbox(id string) {
	c.Sandboxes = slices.DeleteFunc(c.Sandboxes, func(s pod.Sandbox) bool { return s.ID == id })
}

// DropInstance removes the instance with that ID.
func (c *Checkpoint) DropInstance(id string) {
	c.Instances = slices.DeleteFunc(c.Instances, func(i pod.Container) bool { return i.ID == id })
}

// Newest returns, for each container, the instance with the highest attempt whose process may have run, in the
// order of their names.
func (c *Checkpoint) Newest() []pod.Container {
	newest := map[string]pod.Container{}
	for _, i := range c.Instances {
		if last, ok := newest[i.Name]; i.State != pod.Created && (!ok || i.Attempt >= last.Attempt) {
			newest[i.Name] = i
		}
	}
	out := make([]pod.Container, 0, len(newest))
	for _, i := range newest {
		i.PID, i.Reaped = 0, true
		out = append(out, i)
	}
	slices.SortFunc(out, func(a, b pod.Container) int { return compareNames(a.Name, b.Name) })
	return out
}

func compareNames(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
