package containerlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys/watch"
)

const (
	// pace is the least time between two rounds, so that a container that writes line by line costs a
	// batch per round and not one per line.
	pace = 10 * time.Millisecond
	// slow is how often instances are looked at whose files cannot be watched or whose log could not be
	// written; all the others every slowAll ticks of it, should an event have been lost.
	slow    = 2 * time.Second
	slowAll = 15
	// settle bounds how long Finish waits for the shim to pass on what an ended container had written.
	settle = 2 * time.Second
)

// Options are what New needs.
type Options struct {
	Dirs     layout.Dirs
	Rotation Rotation
	// Unwatched: the kernel is not asked to tell of output; it is looked for every half a minute.
	Unwatched bool
	Log       *slog.Logger
}

// Tailer keeps the logs of running instances up to date. All methods may be called from any goroutine,
// and without Run, which only makes what is followed appear by itself.
type Tailer struct {
	dirs      layout.Dirs
	rotation  Rotation
	unwatched bool
	log       *slog.Logger
	changed   chan struct{} // followed has changed
	put       chan struct{} // there is something in full

	mu       sync.Mutex
	followed map[pod.Instance]int // the container's first process; 0: not known yet
	full     map[string]bool      // logs that have been rotated
}

// New returns a Tailer that follows nothing.
func New(o Options) *Tailer {
	return &Tailer{
		dirs: o.Dirs, rotation: o.Rotation, unwatched: o.Unwatched, log: o.Log, changed: make(chan struct{}, 1), put: make(chan struct{}, 1),
		followed: map[pod.Instance]int{}, full: map[string]bool{},
	}
}

// Follow has inst's output converted as it comes. It may be called for every running instance at every
// sync: what is followed already costs a look into a map. pid is its first process, 0 where that is not known.
func (t *Tailer) Follow(inst pod.Instance, pid int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known, already := t.followed[inst]
	t.followed[inst] = max(pid, known)
	if !already {
		t.notify()
	}
}

// Finish converts all that an ended instance has written, an unended last line too, stops following it
// and deletes its raw files. To be called before the exit is reaped; again, also after a crash, is fine.
// When it fails, as on a full disk, nothing is lost and it is to be called again.
func (t *Tailer) Finish(ctx context.Context, inst pod.Instance) error {
	c, err := openConverter(t.dirs, inst, t.rotation)
	if errors.Is(err, errGone) {
		t.drop(func(i pod.Instance) bool { return i == inst })
		return nil
	}
	if err != nil {
		return fmt.Errorf("finishing log: %w", err)
	}
	defer c.close()
	if t.settled(ctx, c) != nil {
		return ctx.Err()
	}
	err = drain(ctx, c, true)
	if c.rotated {
		t.rotated(c.logPath)
	}
	if err == nil {
		err = patiently(ctx, c.remove)
	}
	if err != nil && !errors.Is(err, errGone) {
		return fmt.Errorf("finishing log: %w", err)
	}
	t.drop(func(i pod.Instance) bool { return i == inst })
	return nil
}

// settled waits until the shim has closed the raw files: it learns of the exit before it has read the
// pipes to their end.
func (t *Tailer) settled(ctx context.Context, c *converter) error {
	deadline := time.Now().Add(settle)
	for !ended(c.rawDir) {
		if time.Now().After(deadline) {
			t.log.Warn("something still holds the output of an ended container; what it writes now is not logged",
				"file", c.rawDir)
			return nil
		}
		if err := sleep(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// Forget stops following all instances of a revision, whose files are about to be removed.
func (t *Tailer) Forget(uid pod.UID) {
	t.drop(func(i pod.Instance) bool { return i.UID == uid })
}

func (t *Tailer) drop(which func(pod.Instance) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for inst := range t.followed {
		if which(inst) {
			delete(t.followed, inst)
			t.notify()
		}
	}
}

func (t *Tailer) notify() {
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// Run converts what is followed until ctx ends.
func (t *Tailer) Run(ctx context.Context) error {
	w := watch.New(t.log)
	if t.unwatched {
		w = watch.Silent(t.log)
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watching.Go(func() { _ = w.Run(ctx) })
	watching.Go(func() { t.groomAll(ctx) })
	r := &batch{tailer: t, watch: w, buffers: newBuffers(), passing: &watching,
		open: map[pod.Instance]*tail{}, byPath: map[string]*tail{}}
	defer r.closeAll()
	r.run(ctx)
	return nil
}

// CatchUp converts once what an instance has written and nobody has converted yet. An unended last line
// is left unless the instance has ended. It rotates nothing: that is for whoever keeps the log.
func CatchUp(ctx context.Context, dirs layout.Dirs, inst pod.Instance) error {
	c, err := openConverter(dirs, inst, Rotation{})
	if errors.Is(err, errGone) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("catching up log: %w", err)
	}
	defer c.close()
	// Asked before reading: what comes between is then a writer's.
	if err := drain(ctx, c, ended(c.rawDir)); err != nil && !errors.Is(err, errGone) {
		return fmt.Errorf("catching up log: %w", err)
	}
	return nil
}

// Ended reports that an instance that did run will write no more.
func Ended(dirs layout.Dirs, inst pod.Instance) bool {
	return ended(rawDirOf(dirs, inst))
}

func ended(rawDir string) bool {
	return !hasWriter(rawPath(rawDir, stdout)) && !hasWriter(rawPath(rawDir, stderr))
}

// drain converts all there is.
func drain(ctx context.Context, c *converter, last bool) error {
	b := newBuffers()
	for {
		more := false
		err := patiently(ctx, func() (err error) {
			more, err = c.batch(b, last)
			return err
		})
		if err != nil || !more {
			return err
		}
	}
}

// patiently repeats do while another process is at the instance, which is never for long.
func patiently(ctx context.Context, do func() error) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := do(); !errors.Is(err, errBusy) {
			return err
		}
		if err := sleep(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
