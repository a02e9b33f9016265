// Package fake is a container engine in memory, for tests with virtual time. Its Driver implements
// runtime.Driver, and Runtime implements the whole runtime port on it, with checkpoints in memory;
// the conformance suite in package runtimetest tests both. The methods of Engine inject what podrun
// does not cause: exits, lost tasks, failures, reboots and the death of podrun.
//
// Begin reading at New and Script.
package fake

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
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
	faults
	containers map[string]*container
	sandboxes  map[string]*sandbox
	cgroups    map[pod.UID]bool
	images     map[string]pod.Image
	wakeups    []chan runtime.Wakeup
	ran        []string
	boot       string
	nextIP     int
	// ignoreTerm has the names of containers that exit only on SIGKILL.
	ignoreTerm map[string]bool
	// termCodes maps the names of containers that exit on a signal with a code other than 143 to
	// that code.
	termCodes map[string]int
	// scripts maps images to the behaviour of their containers.
	scripts map[string]Script
	// moved maps images to the digests that pulls of what was pushed have given them.
	moved map[string]string
	// pushed maps images to the digests that a registry has under their names.
	pushed map[string]string
	onExec Command
	slow   map[string]*slowPull
	// watched has what is called when a process ends, by its PID.
	watched map[int][]func()
	// ahead is how far the wall clock is ahead of this process's clock.
	ahead time.Duration
}

// Driver is the Engine as a runtime.Driver.
type Driver struct {
	*Engine
	imageDriver
}

var _ runtime.Driver = Driver{}

// Driver returns the engine's driver.
func (r *Engine) Driver() Driver { return Driver{r, imageDriver{r}} }

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
	// group are the pods that share ports with this one, if it or the other one is a surge.
	group string
	surge bool
	whole bool
}

// NewEngine returns an empty engine with the given boot id.
func NewEngine(boot string) *Engine {
	return &Engine{
		containers: map[string]*container{}, sandboxes: map[string]*sandbox{}, images: map[string]pod.Image{},
		faults: faults{fail: map[string]error{}, left: -1}, ignoreTerm: map[string]bool{}, termCodes: map[string]int{},
		scripts: map[string]Script{}, moved: map[string]string{}, pushed: map[string]string{},
		cgroups: map[pod.UID]bool{}, slow: map[string]*slowPull{},
		watched: map[int][]func(){}, boot: boot,
	}
}

// Boot returns the boot id.
func (r *Engine) Boot() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.boot
}

// Wakeups delivers a wakeup for every change until ctx ends or BreakStream is called.
func (r Driver) Wakeups(ctx context.Context) (<-chan runtime.Wakeup, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(ctx, "Wakeups", ""); err != nil {
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
