// Package fake is a container engine in memory, for tests with virtual time. Its Driver implements
// runtime.Driver, and Runtime implements the whole runtime port on it, with checkpoints in memory;
// the conformance suite in package runtimetest tests both. The methods of Engine inject what podrun
// does not cause: exits, lost tasks, failures, reboots and the death of podrun.
//
// Begin reading at New and Script.
package fake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/checkpointed"
)

// Runtime is the whole runtime port on an Engine, with checkpoints in memory. Its IDs are
// predictable: UID-CONTAINER-ATTEMPT and UID-sandbox-ATTEMPT.
type Runtime struct {
	*checkpointed.Runtime
	*Engine
	// Disk holds the checkpoints.
	Disk *checkpoint.Memory
}

// New returns an empty runtime with the given boot id.
func New(boot string) *Runtime {
	e := NewEngine(boot)
	disk := checkpoint.NewMemory(func(operation string, uid pod.UID) error {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.enter(context.Background(), "Checkpoint", operation+" "+string(uid))
	})
	log := slog.New(slog.DiscardHandler)
	return &Runtime{Engine: e, Disk: disk, Runtime: checkpointed.New(checkpointed.Options{
		Driver: e.Driver(), Store: checkpoint.NewStoreOn(disk, log),
		Boot: e.Boot, Wall: e.Wall, NewID: nameOf, Log: log,
		Dirs: layout.Dirs{Root: "/nonexistent/root", Run: "/nonexistent/run", Log: "/nonexistent/log"},
	})}
}

// nameOf returns a predictable ID for tests. Unlike a real ID, it may be used more than once.
func nameOf(of checkpointed.ID) string {
	if of.Container == "" {
		return fmt.Sprintf("%s-sandbox-%d", of.UID, of.Attempt)
	}
	return fmt.Sprintf("%s-%s-%d", of.UID, of.Container, of.Attempt)
}

// Engine is the state of the container engine. Its methods control tests; those of Driver implement
// the port.
type Engine struct {
	mu         sync.Mutex
	containers map[string]*container
	sandboxes  map[string]*sandbox
	images     map[string]pod.Image
	wakeups    []chan runtime.Wakeup
	calls      []string
	ran        []string
	fail       map[string]error
	boot       string
	nextIP     int
	// left is the number of mutations that still succeed; negative means all.
	left int
	// ignoreTerm has the names of containers that exit only on SIGKILL.
	ignoreTerm map[string]bool
	// termCodes maps the names of containers that exit on a signal with a code other than 143 to
	// that code.
	termCodes map[string]int
	// scripts maps images to the behaviour of their containers.
	scripts map[string]Script
	onExec  Command
	slow    map[string]*slowPull
	// layers maps the names of containers to the sizes of their root filesystems in bytes.
	layers map[string]int64
	// ahead is how far the wall clock is ahead of this process's clock.
	ahead time.Duration
}

// Driver is the Engine as a runtime.Driver.
type Driver struct{ *Engine }

var _ runtime.Driver = Driver{}

// Driver returns the engine's driver.
func (r *Engine) Driver() Driver { return Driver{r} }

// Script describes the behaviour of an image's process.
type Script struct {
	// Run is how long the process runs; 0 means until it is killed or Exit is called.
	Run time.Duration
	// Exit is the exit code after Run.
	Exit int
	// StartError makes the start fail with this error.
	StartError error
	// Unanswered makes the process end before its start is answered, so that it is not known
	// whether it ran.
	Unanswered bool
}

// container is an instance in the engine.
type container struct {
	pod.Container
	key   pod.Key
	input *input // nil: it has none
}

// sandbox is a sandbox in the engine.
type sandbox struct {
	key   pod.Key
	ports []pod.HostPort
	whole bool
}

// NewEngine returns an empty engine with the given boot id.
func NewEngine(boot string) *Engine {
	return &Engine{
		containers: map[string]*container{}, sandboxes: map[string]*sandbox{}, images: map[string]pod.Image{},
		fail: map[string]error{}, ignoreTerm: map[string]bool{}, termCodes: map[string]int{},
		scripts: map[string]Script{}, slow: map[string]*slowPull{}, layers: map[string]int64{}, boot: boot, left: -1,
	}
}

// Boot returns the boot id.
func (r *Engine) Boot() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.boot
}

// enter records a call and returns the error that Fail or CutAfter set for it.
func (r *Engine) enter(ctx context.Context, call, what string) error {
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
	case "ListContainers", "InspectContainers", "SandboxReady", "Rings", "Resolve", "Exec", "LayerSize",
		"OpenStdin", "ResizeTerminal":
	default:
		if r.left > 0 {
			r.left--
		}
	}
	return nil
}

// ErrCut is the error of every call after the mutations of CutAfter are used up.
var ErrCut = errors.New("podrun was killed")

// CutAfter lets n more mutations succeed and makes all later calls fail, reads too, as if podrun
// was killed at that moment. A negative n lets all calls succeed again.
func (r *Engine) CutAfter(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = n
}

// Left returns the number of mutations that CutAfter still lets succeed.
func (r *Engine) Left() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left
}

// Wakeups delivers a wakeup for every change until ctx ends or BreakStream is called.
func (r Driver) Wakeups(ctx context.Context) (<-chan runtime.Wakeup, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(ctx, "Rings", ""); err != nil {
		return nil, err
	}
	ch := make(chan runtime.Wakeup, 1024)
	r.wakeups = append(r.wakeups, ch)
	context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.hangUp(ch)
	})
	return ch, nil
}

func (r *Engine) hangUp(ch chan runtime.Wakeup) {
	if i := slices.Index(r.wakeups, ch); i >= 0 {
		r.wakeups = slices.Delete(r.wakeups, i, i+1)
		close(ch)
	}
}

func (r *Engine) notify(key pod.Key) {
	for _, ch := range r.wakeups {
		select {
		case ch <- runtime.Wakeup{Key: key, At: time.Now()}:
		default:
		}
	}
}

// Calls returns all calls so far, in order.
func (r *Engine) Calls() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// Fail makes every call of the named method return err, until Fail is called with nil.
func (r *Engine) Fail(call string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail[call] = err
}

// SetClock sets the wall clock, by which instances' times are recorded, ahead of this process's
// clock.
func (r *Engine) SetClock(ahead time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ahead = ahead
}

// Wall returns the time of the wall clock.
func (r *Engine) Wall() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wall()
}

func (r *Engine) wall() time.Time { return time.Now().Add(r.ahead) }

// BreakStream closes every open channel of wakeups.
func (r *Engine) BreakStream() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ch := range slices.Clone(r.wakeups) {
		r.hangUp(ch)
	}
}
