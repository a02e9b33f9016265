package fake

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/trace"
)

// PrepareSandbox returns only whether the pod uses the host network.
func (r Driver) PrepareSandbox(p *v1.Pod) (pod.SandboxDetails, error) {
	return pod.SandboxDetails{HostNetwork: p.Spec.HostNetwork}, nil
}

// CreateSandbox creates a sandbox with its own address.
func (r Driver) CreateSandbox(ctx context.Context, p *v1.Pod, s pod.Sandbox) (pod.Sandbox, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(ctx, "CreateSandbox", s.ID); err != nil {
		return s, err
	}
	if err := r.holdPorts(s.ID, p); err != nil {
		return s, err
	}
	r.cgroups[p.UID] = true
	group, surge := pod.UpdateGroup(p)
	r.sandboxes[s.ID] = &sandbox{
		key: pod.KeyOf(p), ports: pod.HostPorts(p), group: group, surge: surge, whole: true,
	}
	if !p.Spec.HostNetwork {
		traced := trace.Of(ctx)
		traced.Network()
		r.nextIP++
		s.IPs = []string{fmt.Sprintf("10.0.%d.%d", r.nextIP/256, r.nextIP%256)}
		traced.Connected(nil)
	}
	r.notify(pod.KeyOf(p))
	return s, nil
}

// holdPorts returns an error for host ports that the sandbox of another pod uses.
func (r Driver) holdPorts(id string, p *v1.Pod) error {
	group, surge := pod.UpdateGroup(p)
	for _, s := range r.sandboxes {
		if s.key == pod.KeyOf(p) || s.group == group && (s.surge || surge) {
			continue
		}
		for _, port := range pod.HostPorts(p) {
			same := func(o pod.HostPort) bool { return o.Port == port.Port && o.Protocol == port.Protocol }
			if slices.ContainsFunc(s.ports, same) {
				return &runtime.ReasonError{Reason: runtime.ReasonHostPortConflict,
					Err: fmt.Errorf("creating sandbox %s: host port %s is taken by pod %s", id, port, s.key)}
			}
		}
	}
	return nil
}

// SandboxReady reports whether the sandbox exists and LoseSandbox was not called for it.
func (r Driver) SandboxReady(s pod.Sandbox) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	there := r.sandboxes[s.ID]
	return there != nil && there.whole
}

// YieldPorts does nothing: nobody connects to a port here.
func (r Driver) YieldPorts(ctx context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.enter(ctx, "YieldPorts", id)
}

// RemoveSandbox removes a sandbox, and the pod's cgroup with the last one.
func (r Driver) RemoveSandbox(ctx context.Context, key pod.Key, s pod.Sandbox, last bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(ctx, "RemoveSandbox", s.ID); err != nil {
		return err
	}
	delete(r.sandboxes, s.ID)
	if last {
		delete(r.cgroups, s.UID)
	}
	r.notify(key)
	return nil
}

// RemovePod removes the pod's cgroup.
func (r Driver) RemovePod(ctx context.Context, key pod.Key, uid pod.UID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(ctx, "RemovePod", string(uid)); err != nil {
		return err
	}
	delete(r.cgroups, uid)
	r.notify(key)
	return nil
}

// Sweep removes the sandboxes that no checkpoint names.
func (r Driver) Sweep(ctx context.Context, known func(id string) bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(ctx, "Sweep", ""); err != nil {
		return err
	}
	for id := range r.sandboxes {
		if !known(id) {
			delete(r.sandboxes, id)
		}
	}
	return nil
}

// SandboxIDs returns the IDs of all sandboxes, sorted.
func (r *Engine) SandboxIDs() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ids []string
	for id := range r.sandboxes {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// HasCgroup reports whether that revision of a pod has a cgroup.
func HasCgroup(r *Engine, uid pod.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cgroups[uid]
}

// LoseSandbox makes a sandbox not ready.
func (r *Engine) LoseSandbox(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sandboxes[id]; s != nil {
		s.whole = false
		r.notify(s.key)
	}
}
