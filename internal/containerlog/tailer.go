package containerlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys/watch"
)

const (
	// pace is the minimum time between two passes, so that a container that writes line by line
	// costs one batch per pass and not one per line.
	pace = 10 * time.Millisecond
	// slow is how often podrun checks instances whose files cannot be watched or whose log could
	// not be written. All other instances are checked every slowAll ticks of it, in case an event
	// was lost.
	slow    = 2 * time.Second
	slowAll = 15
	// settle bounds how long Finish waits for the shim to copy the last output of an ended
	// container.
	settle = 2 * time.Second
)

// Options are the parameters of New.
type Options struct {
	Dirs     layout.Dirs
	Rotation Rotation
	// Unwatched disables inotify; output is then looked for every half a minute.
	Unwatched bool
	Log       *slog.Logger
}

// Tailer keeps the logs of running instances up to date. All methods are safe for concurrent use
// and work without Run, which converts the output of followed instances in the background.
type Tailer struct {
	dirs      layout.Dirs
	rotation  Rotation
	unwatched bool
	log       *slog.Logger
	changed   chan struct{} // followed has changed
	put       chan struct{} // full has an entry

	mu       sync.Mutex
	followed map[pod.Instance]int // PID of the container's first process; 0: unknown
	full     map[string]bool      // rotated logs to groom
}

// New returns a Tailer that follows no instance.
func New(o Options) *Tailer {
	return &Tailer{
		dirs:      o.Dirs,
		rotation:  o.Rotation,
		unwatched: o.Unwatched,
		log:       o.Log,
		changed:   make(chan struct{}, 1),
		put:       make(chan struct{}, 1),
		followed:  map[pod.Instance]int{},
		full:      map[string]bool{},
	}
}

// Follow makes Run convert inst's output as the container writes it. It may be called for every
// running instance at every sync: an instance that is followed already costs a map lookup. pid is
// its first process, 0 if unknown.
func (t *Tailer) Follow(inst pod.Instance, pid int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known, already := t.followed[inst]
	t.followed[inst] = max(pid, known)
	if !already {
		t.notify()
	}
}

// Finish converts all output of an ended instance, including a last line without a newline, stops
// following the instance and deletes its raw files. It must be called before the exit is reaped; it
// may be called repeatedly, also after a crash. If it fails, for example on a full disk, no output
// is lost and the caller must call it again.
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

// settled waits until the shim has closed the raw files: the exit is reported before the shim has
// read the pipes to their end.
func (t *Tailer) settled(ctx context.Context, c *converter) error {
	deadline := time.Now().Add(settle)
	for !ended(c.rawDir) {
		if time.Now().After(deadline) {
			t.log.Warn("a process still has the output of an ended container open; what it writes now is not logged",
				"file", c.rawDir)
			return nil
		}
		if err := sleep(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// Forget stops following all instances of a pod revision whose files are about to be removed.
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

// Run converts the output of followed instances until ctx ends.
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

// CatchUp converts once the output of an instance that is not converted yet. A last line without a
// newline is left for later unless the instance has ended. It does not rotate: only the process
// that keeps the log does.
func CatchUp(ctx context.Context, dirs layout.Dirs, inst pod.Instance) error {
	c, err := openConverter(dirs, inst, Rotation{})
	if errors.Is(err, errGone) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("catching up log: %w", err)
	}
	defer c.close()
	// Checked before reading: the file cannot grow any more if it has no writer now.
	if err := drain(ctx, c, ended(c.rawDir)); err != nil && !errors.Is(err, errGone) {
		return fmt.Errorf("catching up log: %w", err)
	}
	return nil
}

// Ended reports whether an instance that was started writes no more output.
func Ended(dirs layout.Dirs, inst pod.Instance) bool {
	return ended(rawDirOf(dirs, inst))
}

func ended(rawDir string) bool {
	return !hasWriter(rawPath(rawDir, stdout)) && !hasWriter(rawPath(rawDir, stderr))
}

// drain converts all output there is.
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

// patiently repeats do while another process converts the instance, which never takes long.
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
