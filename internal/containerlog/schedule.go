package containerlog

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"podrun.io/podrun/internal/containerlog/cri"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys/watch"
)

// instance is one followed instance whose converter is open.
type instance struct {
	inst pod.Instance
	conv *converter
	log  *slog.Logger // with the instance's identity
	// queued: the instance is due for a batch.
	queued bool
	// poll: its files cannot be watched. failed: the last batch failed. checkPipes: an earlier batch
	// failed, so that the shim may have stopped copying.
	poll, failed, checkPipes bool
	// skipWarned: the warning that some output is left out of the log was logged.
	skipWarned bool
}

// scheduler is the state of Tailer.Run and belongs to its goroutine. In each pass every instance that
// is due gets one batch, so that a busy instance cannot starve the others.
type scheduler struct {
	tailer  *Tailer
	watch   *watch.Watcher
	buffers *buffers
	open    map[pod.Instance]*instance
	byPath  map[string]*instance
	queue   []*instance
	passEnd time.Time // end of the last pass
	copying *sync.WaitGroup
}

func (r *scheduler) run(ctx context.Context) {
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ticks := 1; ; {
		var due <-chan time.Time
		if len(r.queue) > 0 {
			timer.Reset(time.Until(r.passEnd.Add(passInterval)))
			due = timer.C
		}
		select {
		case <-ctx.Done():
			return
		case <-r.tailer.changed:
			r.update()
		case path := <-r.watch.Events():
			if i := r.byPath[path]; i != nil {
				r.enqueue(i)
			}
		case <-ticker.C:
			r.check(ctx, ticks%fullCheckTicks == 0)
			ticks++
		case <-due:
			r.convertDue()
		}
	}
}

// update opens newly followed instances and closes those that are not followed any more.
func (r *scheduler) update() {
	r.tailer.mu.Lock()
	defer r.tailer.mu.Unlock()
	for inst, i := range r.open {
		if _, still := r.tailer.followed[inst]; !still {
			r.close(i)
		}
	}
	for inst := range r.tailer.followed {
		if r.open[inst] == nil {
			r.start(inst)
		}
	}
}

// start opens an instance. One without raw files is not followed any more; a later Follow adds it
// again.
func (r *scheduler) start(inst pod.Instance) {
	c := newConverter(r.tailer.o.Dirs, inst, r.tailer.o.Rotation)
	if _, err := os.Lstat(c.rawPath(cri.Stdout)); errors.Is(err, os.ErrNotExist) {
		delete(r.tailer.followed, inst)
		return
	}
	i := &instance{inst: inst, conv: c, log: r.tailer.o.Log.With(
		"pod", inst.Key, "container", inst.Container, "attempt", inst.Attempt)}
	r.open[inst] = i
	r.tailer.link(inst)
	r.watchFiles(i)
	r.enqueue(i)
}

// watchFiles watches the raw files; a terminal has none for stderr.
func (r *scheduler) watchFiles(i *instance) {
	i.poll = false
	for _, s := range streams {
		path := i.conv.rawPath(s)
		r.byPath[path] = i
		if err := r.watch.Add(path); err != nil && (s == cri.Stdout || errors.Is(err, watch.ErrPoll)) {
			i.poll = true
		}
	}
}

func (r *scheduler) close(i *instance) {
	for _, s := range streams {
		path := i.conv.rawPath(s)
		r.watch.Remove(path)
		delete(r.byPath, path)
	}
	i.conv.close()
	i.conv = nil
	delete(r.open, i.inst)
}

func (r *scheduler) closeAll() {
	for _, i := range r.open {
		r.close(i)
	}
}

func (r *scheduler) enqueue(i *instance) {
	if !i.queued {
		i.queued = true
		r.queue = append(r.queue, i)
	}
}

// check enqueues instances that get no events, and takes over output that the shim does not copy
// any more.
func (r *scheduler) check(ctx context.Context, all bool) {
	for _, i := range r.open {
		if i.poll {
			r.watchFiles(i)
		}
		if all || i.poll || i.failed {
			r.enqueue(i)
		}
		if all || i.checkPipes {
			i.checkPipes = false
			r.copyOrphans(ctx, i)
		}
	}
}

// convertDue gives each instance that is due one batch.
func (r *scheduler) convertDue() {
	due := r.queue
	r.queue = nil
	behind := false
	for _, i := range due {
		i.queued = false
		if i.conv == nil {
			continue
		}
		more, err := i.conv.batch(r.buffers, false)
		if i.conv.rotated {
			i.conv.rotated = false
			r.tailer.queueCleaning(i.conv.logPath)
		}
		i.warnSkipped()
		r.reportError(i, err)
		if more || errors.Is(err, errBusy) {
			r.enqueue(i)
		}
		behind = behind || more
	}
	r.passEnd = time.Now()
	if behind {
		r.passEnd = r.passEnd.Add(-passInterval)
	}
}

// warnSkipped logs once per instance that some of its output is left out of the log.
func (i *instance) warnSkipped() {
	if i.conv.skipped > 0 && !i.skipWarned {
		i.skipWarned = true
		i.log.Warn("container output is left out of its log: "+
			"it is written faster than it can be converted, and rotation would have removed it",
			"bytes", i.conv.skipped)
	}
}

// reportError logs an error once, and the recovery from it.
func (r *scheduler) reportError(i *instance, err error) {
	switch {
	case errors.Is(err, errBusy):
	case errors.Is(err, errRemoved):
		r.tailer.unfollow(func(inst pod.Instance) bool { return inst == i.inst })
	case err != nil && !i.failed:
		i.failed = true
		i.log.Error("cannot write a container's log; no output is lost, retrying", "err", err)
	case err == nil && i.failed:
		i.failed, i.checkPipes = false, true
		i.log.Info("writing a container's log works again")
	}
}
