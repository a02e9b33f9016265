// Package checkpoint stores what podrun must know about each revision of a pod and cannot get from
// anywhere else: the manifest that it runs, its sandboxes and instances with their IDs, how they
// exited, and what has been done to them. A revision has one file,
// <root>/pods/<uid>/checkpoint.json, which is replaced as a whole. Only the process that holds the
// pod's owner lock writes it; every process may read it.
//
// The package does not know what is running: package checkpointed reads that from the container
// runtime and merges both. It creates no volumes or logs, but it removes a revision's directory
// with everything in it.
//
// Begin reading at [Checkpoint] and [Store].
package checkpoint

import (
	"encoding/json"
	"slices"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// Version is the version of the file format. A file of a later version is not read.
const Version = 1

// Checkpoint is what is stored of one revision of a pod. A Checkpoint that a Store has returned
// never changes and must not be modified.
type Checkpoint struct {
	Version int `json:"version"`
	// Sequence orders the revisions of a pod: a later revision has a higher number. It does not
	// depend on a clock.
	Sequence int64 `json:"sequence"`
	// Owner is the command that the pod belongs to: "serve" or "once".
	Owner string `json:"owner"`
	// Pod is the manifest that the revision runs, with the resources that it has been allocated.
	Pod *v1.Pod `json:"pod"`
	// Sandboxes are the sandboxes that were created, or are about to be created, and have not been
	// removed.
	Sandboxes []pod.Sandbox `json:"sandboxes,omitempty"`
	// LastSandbox is the sandbox that was removed last, without its details. It tells the addresses
	// that a completed pod had.
	LastSandbox *pod.Sandbox `json:"lastSandbox,omitempty"`
	// Instances are the instances that were started or are about to be. State is Created from
	// before the instance is created, Running from just before its process is started, and Exited
	// once its exit is recorded. The newest instance of each container stays here after it is
	// removed from the runtime.
	Instances []pod.Container `json:"instances,omitempty"`
	// Evicted is the reason why the pod was evicted; "" if it was not.
	Evicted string `json:"evicted,omitempty"`
	// Interrupted reports that a shutdown of the machine terminated the pod before it had finished.
	Interrupted bool `json:"interrupted,omitempty"`
	// Conditions are the pod's conditions as they were last published, for their transition times.
	Conditions []v1.PodCondition `json:"conditions,omitempty"`
}

// Key returns the key of the checkpoint's pod.
func (c *Checkpoint) Key() pod.Key { return pod.KeyOf(c.Pod) }

// UID returns the UID of the revision.
func (c *Checkpoint) UID() pod.UID { return c.Pod.UID }

// Clone returns a copy whose lists may be modified. The manifest is shared: it may be replaced but
// not modified.
func (c *Checkpoint) Clone() *Checkpoint {
	out := *c
	out.Sandboxes = slices.Clone(c.Sandboxes)
	out.Instances = slices.Clone(c.Instances)
	out.Conditions = slices.Clone(c.Conditions)
	return &out
}

// Sandbox returns a pointer to the sandbox with the ID; nil if there is none. The sandbox may be
// modified only if c may be.
func (c *Checkpoint) Sandbox(id string) *pod.Sandbox {
	for i := range c.Sandboxes {
		if c.Sandboxes[i].ID == id {
			return &c.Sandboxes[i]
		}
	}
	return nil
}

// Instance returns a pointer to the instance with the ID; nil if there is none. The instance may be
// modified only if c may be.
func (c *Checkpoint) Instance(id string) *pod.Container {
	for i := range c.Instances {
		if c.Instances[i].ID == id {
			return &c.Instances[i]
		}
	}
	return nil
}

// hasResult reports that c has an exit of a container that need not run again: without it, the container would. Where
// each exit is followed by a restart, nothing is lost with one. Of a container that must not run again, whatever it
// did, the start is a result too. Each later state of c must be as durable as the first one with the result: not each
// file system keeps the order of sys.WriteFile.
func (c *Checkpoint) hasResult() bool {
	return slices.ContainsFunc(c.Instances, func(i pod.Container) bool {
		policy := c.Pod.Spec.RestartPolicy
		for k := range c.Pod.Spec.Containers {
			if own := &c.Pod.Spec.Containers[k]; own.Name == i.Name && own.RestartPolicy != nil {
				policy = v1.RestartPolicy(*own.RestartPolicy)
			}
		}
		return i.State == pod.Exited && policy != v1.RestartPolicyAlways ||
			i.State == pod.Running && policy == v1.RestartPolicyNever
	})
}

// DropSandbox removes the sandbox with the ID from the checkpoint's sandboxes. It becomes LastSandbox.
func (c *Checkpoint) DropSandbox(id string) {
	if s := c.Sandbox(id); s != nil {
		last := *s
		last.Details = pod.SandboxDetails{}
		c.LastSandbox = &last
	}
	c.Sandboxes = slices.DeleteFunc(c.Sandboxes, func(s pod.Sandbox) bool { return s.ID == id })
}

// DropInstance removes the instance with the ID from the checkpoint.
func (c *Checkpoint) DropInstance(id string) {
	c.Instances = slices.DeleteFunc(c.Instances, func(i pod.Container) bool { return i.ID == id })
}

// Newest returns, for each container, the instance with the highest attempt whose process may have
// run, ordered by container name. In the result PID is 0 and Reaped is true.
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

// encode returns c in JSON. It inserts the manifest, which is most of it and encoded already.
func encode(c *Checkpoint, manifest json.RawMessage) ([]byte, error) {
	rest, err := json.Marshal(struct {
		*Checkpoint
		Pod *v1.Pod `json:"pod,omitempty"`
	}{Checkpoint: c})
	if err != nil {
		return nil, err
	}
	data := make([]byte, 0, len(rest)+len(manifest)+len(`,"pod":`))
	data = append(data, rest[:len(rest)-1]...) // never empty: it contains the version
	data = append(append(data, `,"pod":`...), manifest...)
	return append(data, '}'), nil
}
