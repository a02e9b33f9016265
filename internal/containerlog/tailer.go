// Package containerlog converts the output of containers into log files in CRI format and rotates
// these files. Package cri reads them.
//
// The runtime shim appends each container's output to plain files, the raw files, and needs no
// other process to read them. So a container does not block and loses no output while podrun is not
// running. A converter takes the instance's lock for one batch, continues at the instance's
// conversion position and advances it; the position is in a file beside the raw files, not in the
// pod's checkpoint. So any number of processes may convert an instance, one after the other, and a
// kill at any instruction neither loses nor repeats a line.
//
// A full log is renamed and a new one is begun; renamed logs are compressed and later removed.
// Neither the container nor the shim notices, because only the converter writes to logs.
//
// The package does not create the raw files (the runtime does) and makes no decisions about pods.
// Begin reading at Tailer, which converts, and at Reader.
package containerlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/containerlog/links"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/watch"
)

const (
	// passInterval is the minimum time between two passes, so that a container that writes line by line
	// costs one batch per pass and not one per line.
	passInterval = 10 * time.Millisecond
	// checkInterval is how often podrun checks instances whose files cannot be watched or whose log could
	// not be written. All other instances are checked every fullCheckTicks ticks of it, in case an event
	// was lost.
	checkInterval  = 2 * time.Second
	fullCheckTicks = 15
	// writersTimeout bounds how long Finish waits for the shim to copy the last output of an ended
	// container.
	writersTimeout = 2 * time.Second
)

// Options are the parameters of New.
type Options struct {
	Dirs     layout.Dirs
	Rotation Rotation
	// Links makes links to the logs of instances in Dirs.LogLinks. Without it those that were made
	// before are removed for followed instances and what their containers ran before.
	Links bool
	// Unwatched disables inotify; output is then looked for every half a minute.
	Unwatched bool
	Log       *slog.Logger
}

// Tailer keeps the logs of running instances up to date. All methods are safe for concurrent use
// and work without Run, which converts the output of followed instances in the background.
type Tailer struct {
	o        Options
	changed  chan struct{} // followed has changed
	cleaning chan struct{} // rotated has an entry

	mu       sync.Mutex
	followed map[pod.Instance]int // PID of the container's first process; 0: unknown
	rotated  map[string]bool      // logs whose segments have to be cleaned

	linking sync.Once // a link that could not be made was logged
}

// New returns a Tailer that follows no instance.
func New(o Options) *Tailer {
	return &Tailer{
		o:        o,
		changed:  make(chan struct{}, 1),
		cleaning: make(chan struct{}, 1),
		followed: map[pod.Instance]int{},
		rotated:  map[string]bool{},
	}
}

// Follow makes Run convert inst's output as the container writes it. It may be called for every
// running instance at every sync: an instance that is followed already costs a map lookup. pid is
// its first process, 0 if unknown.
func (t *Tailer) Follow(inst pod.Instance, pid int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	last, already := t.followed[inst]
	t.followed[inst] = max(pid, last)
	if !already {
		wake(t.changed)
	}
}

// Finish converts all output of an ended instance, including a last line without a newline, stops
// following the instance and deletes its raw files. It must be called before the exit is reaped; it
// may be called repeatedly, also after a crash. If it fails, for example on a full disk, no output
// is lost and the caller must call it again.
func (t *Tailer) Finish(ctx context.Context, inst pod.Instance) error {
	log := t.o.Dirs.ContainerLog(inst.Key, inst.UID, inst.Container, inst.Attempt)
	c, err := openConverter(t.o.Dirs, inst, t.o.Rotation)
	if errors.Is(err, errRemoved) {
		t.unfollow(func(i pod.Instance) bool { return i == inst })
		t.queueCleaning(log) // who finished it may have been killed before that
		return nil
	}
	if err != nil {
		return fmt.Errorf("finishing log: %w", err)
	}
	defer c.close()
	t.link(inst) // Run may not have seen the instance
	if t.awaitWriters(ctx, c) != nil {
		return ctx.Err()
	}
	if err = drain(ctx, c, true); err == nil {
		err = retryBusy(ctx, c.remove)
	}
	if err == nil || errors.Is(err, errRemoved) || c.rotated { // who rotated it may have been killed before cleaning it
		t.queueCleaning(log)
	}
	if err != nil && !errors.Is(err, errRemoved) {
		return fmt.Errorf("finishing log: %w", err)
	}
	t.unfollow(func(i pod.Instance) bool { return i == inst })
	return nil
}

// awaitWriters waits until the shim has closed the raw files: the exit is reported before the shim has
// read the pipes to their end.
func (t *Tailer) awaitWriters(ctx context.Context, c *converter) error {
	deadline := time.Now().Add(writersTimeout)
	for !ended(c.rawDir) {
		if time.Now().After(deadline) {
			t.o.Log.Warn("a process still has the output of an ended container open; what it writes now is not logged",
				"file", c.rawDir)
			return nil
		}
		if err := sys.Sleep(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// Forget stops following all instances of a pod revision whose files are about to be removed, and
// removes the links to its logs.
func (t *Tailer) Forget(uid pod.UID) {
	t.unfollow(func(i pod.Instance) bool { return i.UID == uid })
	if err := links.RemoveRevision(t.o.Dirs, uid); err != nil {
		t.o.Log.Warn("removing the links to a pod's logs failed", "uid", uid, "err", err)
	}
}

// link makes the link to the log of an instance, or removes what links its container has. No pod
// depends on it: an error is logged once.
func (t *Tailer) link(inst pod.Instance) {
	change := links.RemoveUpTo
	if t.o.Links {
		change = links.Create
	}
	if err := change(t.o.Dirs, inst); err != nil {
		t.linking.Do(func() {
			t.o.Log.Warn("log collectors do not find all container logs by their links",
				"dir", t.o.Dirs.LogLinks, "err", err)
		})
	}
}

func (t *Tailer) unfollow(which func(pod.Instance) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for inst := range t.followed {
		if which(inst) {
			delete(t.followed, inst)
			wake(t.changed)
		}
	}
}

// wake makes a goroutine receive from c, now or when it is ready.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run converts the output of followed instances until ctx ends.
func (t *Tailer) Run(ctx context.Context) error {
	w := watch.New(t.o.Log)
	if t.o.Unwatched {
		w = watch.Silent(t.o.Log)
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watching.Go(func() { _ = w.Run(ctx) })
	watching.Go(func() { t.cleanRotated(ctx) })
	r := &scheduler{tailer: t, watch: w, buffers: newBuffers(), copying: &watching,
		open: map[pod.Instance]*instance{}, byPath: map[string]*instance{}}
	defer r.closeAll()
	r.run(ctx)
	return nil
}

// drain converts all output there is.
func drain(ctx context.Context, c *converter, last bool) error {
	return drainUntil(ctx, c, last, func() bool { return false })
}

// drainUntil is drain that ends early once enough says so.
func drainUntil(ctx context.Context, c *converter, last bool, enough func() bool) error {
	b := newBuffers()
	for {
		more := false
		err := retryBusy(ctx, func() (err error) {
			more, err = c.batch(b, last)
			return err
		})
		if err != nil || !more || enough() {
			return err
		}
	}
}

// retryBusy repeats do while another process converts the instance, which never takes long.
func retryBusy(ctx context.Context, do func() error) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := do(); !errors.Is(err, errBusy) {
			return err
		}
		if err := sys.Sleep(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
}
