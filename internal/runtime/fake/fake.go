// Package fake is a container engine in memory, for tests in virtual time. Its Driver keeps the contract of
// runtime.Driver, and Runtime that of the whole port; the conformance suite holds it to that. The methods of Engine
// make things happen that no podrun asked for.
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
	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/checkpointed"
)

// Runtime is the whole port on an Engine, with checkpoints in memory. IDs tell what they are for: UID-CONTAINER-ATTEMPT
// and UID-sandbox-ATTEMPT.
type Runtime struct {
	*checkpointed.Runtime
	*Engine
	// Disk has the checkpoints.
	Disk *checkpoint.Memory
}

// New returns an empty runtime that runs under the given boot id.
func New(boot string) *Runtime {
	e := NewEngine(boot)
	disk := checkpoint.NewMemory(func(operation string, uid pod.UID) error {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.enter(context.Background(), "Checkpoint", operation+" "+string(uid))
	})
	log := slog.New(slog.DiscardHandler)
	return &Runtime{Engine: e, Disk: disk, Runtime: checkpointed.New(checkpointed.Options{
		Driver: e.Driver(), Store: checkpoint.NewStoreOn(disk, log), Boot: e.Boot, Wall: e.Wall, NewID: nameOf, Log: log,
		Dirs: layout.Dirs{Root: "/nonexistent/root", Run: "/nonexistent/run", Log: "/nonexistent/log"},
	})}
}

// nameOf makes an ID that tells what it is for. It is not used once only: tests know what to expect.
func nameOf(of checkpointed.ID) string {
	if of.Container == "" {
		return fmt.Sprintf("%s-sandbox-%d", of.UID, of.Attempt)
	}
	return fmt.Sprintf("%s-%s-%d", of.UID, of.Container, of.Attempt)
}

// Engine is what a container engine has. Its methods are not the port's.
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
	// left is how many mutations are still let through; negative: all.
	left int
	// ignoreTerm are containers, by name, that do not end on a signal but SIGKILL.
	ignoreTerm map[string]bool
	// termCodes are the exit codes of containers, by name, that end on a signal with another than 143.
	termCodes map[string]int
	// scripts say how containers behave once started, by image.
	scripts map[string]Script
	onExec  Command
	slow    map[string]*slowPull
	// layers are the sizes of root filesystems, by container.
	layers map[string]int64
	// ahead is how far the wall's clock is ahead of this process's.
	ahead time.Duration
}

// Driver is the Engine in the roles of runtime.Driver.
type Driver struct{ *Engine }

var _ runtime.Driver = Driver{}

// Driver returns the engine's driver.
func (r *Engine) Driver() Driver { return Driver{r} }

// Script is how an image's process behaves.
type Script struct {
	// Run is how long it lives; 0: until it is ended from outside.
	Run time.Duration
	// Exit is its exit code then.
	Exit int
	// StartError makes it fail to start.
	StartError error
	// Unanswered makes it end before its start is answered, so that nobody knows whether it ran.
	Unanswered bool
}

type container struct {
	pod.Container
	key   pod.Key
	input *input // nil: it has none
}

// sandbox is what the engine has of one.
type sandbox struct {
	key   pod.Key
	ports []pod.HostPort
	whole bool
}

// NewEngine returns an empty engine on a machine with the given boot id.
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

// enter counts a call and returns the error that was ordered for it.
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
	case "ListContainers", "InspectContainers", "SandboxReady", "Rings", "Resolve", "Exec", "LayerSize", "OpenStdin", "ResizeTerminal":
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
func (r *Engine) CutAfter(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = n
}

// Left returns how many mutations CutAfter still lets through.
func (r *Engine) Left() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left
}

// Wakeups delivers a ring for every change until ctx ends or BreakStream is called.
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

// Calls returns what has been called so far, in order.
func (r *Engine) Calls() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// Fail makes every call of the named method fail until it is given nil.
func (r *Engine) Fail(call string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail[call] = err
}

// SetClock sets the wall's clock, by which instances' times are noted down, that far ahead of this process's.
func (r *Engine) SetClock(ahead time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ahead = ahead
}

// Wall is the wall's clock.
func (r *Engine) Wall() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wall()
}

func (r *Engine) wall() time.Time { return time.Now().Add(r.ahead) }

// BreakStream closes every open stream of rings.
func (r *Engine) BreakStream() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ch := range slices.Clone(r.wakeups) {
		r.hangUp(ch)
	}
}
