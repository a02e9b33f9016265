// Package fake is a runtime in memory, for tests in virtual time. It keeps the port's contract, and the
// conformance suite holds it to that; its own methods make things happen that no podrun asked for.
package fake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// Runtime implements every role of the port.
type Runtime struct {
	mu         sync.Mutex
	containers map[string]*container
	sandboxes  map[string]*sandbox
	data       map[pod.UID]*kept
	images     map[string]pod.Image
	rings      map[chan runtime.Ring]bool
	calls      []string
	fail       map[string]error
	boot       string
	owner      string
	nextIP     int
	// left is how many mutations are still let through; negative: all.
	left int
	// ignoreTerm are containers, by name, that do not end on a signal but SIGKILL.
	ignoreTerm map[string]bool
	// scripts say how containers behave once started, by image.
	scripts map[string]Script
	onExec  Command
	slow    map[string]*slowPull
	// layers are the sizes of root filesystems, by container.
	layers map[string]int64
	// ahead is how far the wall's clock is ahead of this process's.
	ahead time.Duration
}

// Script is how an image's process behaves.
type Script struct {
	// Run is how long it lives; 0: until it is ended from outside.
	Run time.Duration
	// Exit is its exit code then.
	Exit int
	// StartError makes it fail to start.
	StartError error
}

type container struct {
	pod.Container
	key   pod.Key
	input *input // nil: it has none
}

type sandbox struct {
	pod.Sandbox
	key   pod.Key
	owner string
	ports []pod.HostPort
}

type kept struct {
	pod        *v1.Pod
	owner      string
	remembered []pod.Container
}

// New returns an empty runtime that runs under the given boot id and owner.
func New(boot, owner string) *Runtime {
	return &Runtime{
		containers: map[string]*container{}, sandboxes: map[string]*sandbox{}, data: map[pod.UID]*kept{},
		images: map[string]pod.Image{}, rings: map[chan runtime.Ring]bool{}, fail: map[string]error{},
		ignoreTerm: map[string]bool{}, scripts: map[string]Script{}, slow: map[string]*slowPull{}, layers: map[string]int64{}, boot: boot, owner: owner, left: -1,
	}
}

// enter counts a call and returns the error that was ordered for it.
func (r *Runtime) enter(ctx context.Context, call, what string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.left == 0 {
		return ErrCut
	}
	r.calls = append(r.calls, call+" "+what)
	if err := r.fail[call]; err != nil {
		return err
	}
	switch call {
	case "List", "Inspect", "Rings", "Resolve", "Exec", "LayerSize", "OpenStdin", "ResizeTerminal":
	default:
		if r.left > 0 {
			r.left--
		}
	}
	return nil
}

// ErrCut is what every call returns after CutAfter's mutations are used up.
var ErrCut = errors.New("podrun was killed")

// CutAfter lets n more mutations through and then none, and no question either, as if podrun had been
// killed at that instant; a negative n lets all through again.
func (r *Runtime) CutAfter(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = n
}

// Left returns how many mutations CutAfter still lets through.
func (r *Runtime) Left() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left
}

// List returns every pod.
func (r *Runtime) List(ctx context.Context) ([]pod.Observed, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(ctx, "List", ""); err != nil {
		return nil, err
	}
	keys := map[pod.Key]bool{}
	for _, c := range r.containers {
		keys[c.key] = true
	}
	for _, s := range r.sandboxes {
		keys[s.key] = true
	}
	for _, d := range r.data {
		keys[pod.KeyOf(d.pod)] = true
	}
	var all []pod.Observed
	for key := range keys {
		all = append(all, r.observe(key))
	}
	return all, nil
}

// Inspect returns one pod.
func (r *Runtime) Inspect(ctx context.Context, key pod.Key) (pod.Observed, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(ctx, "Inspect", key.String()); err != nil {
		return pod.Observed{}, err
	}
	return r.observe(key), nil
}

func (r *Runtime) observe(key pod.Key) pod.Observed {
	o := pod.Observed{Key: key}
	for _, c := range r.containers {
		if c.key == key {
			o.Containers = append(o.Containers, c.Container)
		}
	}
	for _, s := range r.sandboxes {
		if s.key == key {
			o.Sandboxes = append(o.Sandboxes, s.Sandbox)
			o.Owner = s.owner
		}
	}
	for uid, d := range r.data {
		if pod.KeyOf(d.pod) == key {
			o.Data = append(o.Data, uid)
			o.Remembered = append(o.Remembered, d.remembered...)
			o.Owner = d.owner
		}
	}
	o.Sort()
	return o
}

// Rings delivers a ring for every change until ctx ends or BreakStream is called.
func (r *Runtime) Rings(ctx context.Context) (<-chan runtime.Ring, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(ctx, "Rings", ""); err != nil {
		return nil, err
	}
	ch := make(chan runtime.Ring, 1024)
	r.rings[ch] = true
	context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.hangUp(ch)
	})
	return ch, nil
}

func (r *Runtime) hangUp(ch chan runtime.Ring) {
	if r.rings[ch] {
		delete(r.rings, ch)
		close(ch)
	}
}

func (r *Runtime) ring(key pod.Key) {
	for ch := range r.rings {
		select {
		case ch <- runtime.Ring{Key: key, At: time.Now()}:
		default:
		}
	}
}

// CreateSandbox makes a sandbox with an address of its own.
func (r *Runtime) CreateSandbox(ctx context.Context, p *v1.Pod, attempt int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := fmt.Sprintf("%s-sandbox-%d", p.UID, attempt)
	if err := r.enter(ctx, "CreateSandbox", id); err != nil {
		return err
	}
	if s := r.sandboxes[id]; s != nil && s.Ready {
		return nil
	}
	if err := r.holdPorts(id, p); err != nil {
		return err
	}
	s := &sandbox{key: pod.KeyOf(p), owner: r.owner, ports: pod.HostPorts(p), Sandbox: pod.Sandbox{ID: id, UID: p.UID, Attempt: attempt, Ready: true, CreatedAt: time.Now()}}
	if !p.Spec.HostNetwork {
		r.nextIP++
		s.IPs = []string{fmt.Sprintf("10.0.%d.%d", r.nextIP/256, r.nextIP%256)}
	}
	r.sandboxes[id] = s
	r.ring(s.key)
	return nil
}

// holdPorts refuses host ports that another pod's sandbox has.
func (r *Runtime) holdPorts(id string, p *v1.Pod) error {
	for _, s := range r.sandboxes {
		if s.key == pod.KeyOf(p) {
			continue
		}
		for _, port := range pod.HostPorts(p) {
			if slices.ContainsFunc(s.ports, func(o pod.HostPort) bool { return o.Port == port.Port && o.Protocol == port.Protocol }) {
				return &runtime.ReasonError{Reason: runtime.ReasonHostPortConflict, Err: fmt.Errorf("creating sandbox %s: host port %s is taken by pod %s", id, port, s.key)}
			}
		}
	}
	return nil
}

// RemoveSandbox forgets a sandbox.
func (r *Runtime) RemoveSandbox(ctx context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(ctx, "RemoveSandbox", id); err != nil {
		return err
	}
	if s := r.sandboxes[id]; s != nil {
		delete(r.sandboxes, id)
		r.ring(s.key)
	}
	return nil
}

// SavePod keeps a copy of p.
func (r *Runtime) SavePod(p *v1.Pod, owner string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(context.Background(), "SavePod", string(p.UID)); err != nil {
		return err
	}
	d := r.data[p.UID]
	if d == nil {
		d = &kept{}
		r.data[p.UID] = d
	}
	d.pod, d.owner = p.DeepCopy(), owner
	return nil
}

// Remember keeps a copy.
func (r *Runtime) Remember(uid pod.UID, newest []pod.Container) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(context.Background(), "Remember", string(uid)); err != nil {
		return err
	}
	if d := r.data[uid]; d != nil {
		d.remembered = slices.Clone(newest)
	}
	return nil
}

// Note implements runtime.Data.
func (r *Runtime) Note(_ pod.UID, id string, n pod.Notes) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(context.Background(), "Note", id); err != nil {
		return err
	}
	if c := r.containers[id]; c != nil {
		n.Hooking = false
		c.Notes = n
	}
	return nil
}

// LoadPod returns a copy.
func (r *Runtime) LoadPod(uid pod.UID) (*v1.Pod, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.data[uid]
	if d == nil {
		return nil, fmt.Errorf("manifest of %s: %w", uid, runtime.ErrNotFound)
	}
	return d.pod.DeepCopy(), nil
}

// RemoveData forgets what was kept for a revision.
func (r *Runtime) RemoveData(ctx context.Context, key pod.Key, uid pod.UID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(ctx, "RemoveData", string(uid)); err != nil {
		return err
	}
	delete(r.data, uid)
	r.ring(key)
	return nil
}

// Calls returns what has been called so far, in order.
func (r *Runtime) Calls() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// Fail makes every call of the named method fail until it is given nil.
func (r *Runtime) Fail(call string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail[call] = err
}

// SetClock sets the wall's clock, by which instances' times are noted down, that far ahead of this process's.
func (r *Runtime) SetClock(ahead time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ahead = ahead
}

// Wall is the wall's clock.
func (r *Runtime) Wall() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wall()
}

func (r *Runtime) wall() time.Time { return time.Now().Add(r.ahead) }

// BreakStream closes every open stream of rings.
func (r *Runtime) BreakStream() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ch := range slices.Collect(maps.Keys(r.rings)) {
		r.hangUp(ch)
	}
}
