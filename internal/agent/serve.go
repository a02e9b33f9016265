package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status"
)

// The kinds of runs that own pods.
const (
	ownerServe = "serve"
	ownerOnce  = "once"
)

// ownerDown owns no pods, but the run directory for as long as it ends some.
const ownerDown = "down"

// ErrServing says that another podrun serve works on the same run directory, ErrEnding that a podrun down does.
var (
	ErrServing = errors.New("podrun serve is running")
	ErrEnding  = errors.New("podrun down is at work")
)

// Serve keeps the pods of all sources running until ctx ends. They run on afterwards, unless stopPods.
func Serve(ctx context.Context, o Options, stopPods bool) error {
	cache := cacheOptions{dir: o.Dirs.Manifests()}
	if _, err := o.sources(cache, nil); err != nil { // before anything is started
		return err
	}
	unlock, err := lockServe(o.Dirs, ownerServe)
	if err != nil {
		return err
	}
	defer unlock()
	d, err := newDesk(&o)
	if err != nil {
		return err
	}
	defer d.server.Close()
	h, err := open(ctx, o, ownerServe, d.files)
	if err != nil {
		return err
	}
	defer h.close()
	h.sweep(ctx)
	if h.conn != nil {
		o.loadImages(ctx, h.conn.Runtime)
	}
	running, err := h.origins(ctx)
	if err != nil {
		return err
	}
	all, err := o.sources(cache, running)
	if err != nil {
		return err
	}
	prune(cache.dir, o.Sources.URL, o.Log)
	if h.loop.Strays, err = status.Keys(o.Dirs); err != nil {
		return err
	}
	if h.conn != nil {
		d.keeper, d.disks = h.newKeeper(), h.disks()
	}
	h.loop.StopAll = stopPods
	h.loop.Takes = func(seen pod.Observed) bool { return seen.Owner == ownerServe || seen.Owner == "" }
	h.o.Log.Info("serving", "manifests", sourceNames(all), "node", o.NodeName)
	tell := notifier{o.Notify, o.Log}
	defer context.AfterFunc(ctx, func() { tell.say("STOPPING=1") })()
	h.run(ctx, func(ctx context.Context, out chan<- manifest.Desired) {
		ready := false
		told := teller{events: h.events}
		shown := problemFile{path: o.Dirs.ManifestProblems()}
		in := make(chan manifest.Desired)
		var reading sync.WaitGroup
		defer reading.Wait()
		reading.Go(func() { read(ctx, all, running, in, h.ended) })
		reading.Go(func() { tell.keep(ctx, h.found) })
		h.beside(ctx, d, &reading)
		for {
			select {
			case <-ctx.Done():
				return
			case want := <-in:
				d.want(want)
				told.tell(o.Log, want)
				if err := shown.write(want.Problems); err != nil {
					o.Log.Warn("get cannot show what is wrong with manifests", "why", err)
				}
				select {
				case out <- want:
					// With a source that is away, as much is served as can be.
					if !ready && (want.Complete || len(want.Problems) > 0) {
						ready = true
						tell.ready(len(want.Pods))
					}
				case <-ctx.Done():
					return
				}
			}
		}
	})
	return nil
}

// beside starts what serve does beside its pods, until ctx ends.
func (h *house) beside(ctx context.Context, d *desk, running *sync.WaitGroup) {
	running.Go(func() { keepSmall(ctx, h.o.Log) })
	running.Go(func() { h.ended("http", d.run(ctx, h.relister)) })
	h.awaitShutdown(ctx, running)
	if d.keeper != nil {
		running.Go(func() { h.ended("gc", d.keeper.Run(ctx)) })
	}
}

// forkTime is for how long a child of a killed serve may still hold its files: from the fork that begot it
// until it becomes another program.
const forkTime = time.Second

// lockServe lets one serve or down at a time work on a run directory; the lock's file says which. The kernel drops
// the lock of a process that was killed.
func lockServe(dirs layout.Dirs, who string) (unlock func(), err error) {
	path := filepath.Join(dirs.Run, "serve.lock")
	if err := os.MkdirAll(dirs.Run, 0o755); err != nil {
		return nil, fmt.Errorf("making the run directory: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the run directory: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	for end := time.Now().Add(forkTime); errors.Is(err, unix.EWOULDBLOCK) && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w on %s", holder(f), dirs.Run)
		}
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	if f.Truncate(0) == nil {
		_, _ = f.WriteString(who) // where it cannot be said, as on a full disk, it is taken for a serve's
	}
	return func() { f.Close() }, nil
}

// holder says who has the lock.
func holder(lock io.ReaderAt) error {
	text := make([]byte, len(ownerDown))
	if n, _ := lock.ReadAt(text, 0); string(text[:n]) == ownerDown {
		return ErrEnding
	}
	return ErrServing
}
