package containerlog

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys/watch"
)

// tail is one followed instance whose converter is open.
type tail struct {
	inst pod.Instance
	conv *converter
	// queued: the instance is due for a batch.
	queued bool
	// poll: its files cannot be watched. failed: the last batch failed. doubt: an earlier batch
	// failed, so that the shim may have stopped copying.
	poll, failed, doubt bool
	// flooded: the warning that some output is left out of the log was logged.
	flooded bool
}

// batch is the state of Tailer.Run and belongs to its goroutine. In each pass every instance that
// is due gets one batch, so that a busy instance cannot starve the others.
type batch struct {
	tailer  *Tailer
	watch   *watch.Watcher
	buffers *buffers
	open    map[pod.Instance]*tail
	byPath  map[string]*tail
	queue   []*tail
	ended   time.Time // end of the last pass
	passing *sync.WaitGroup
}

func (r *batch) run(ctx context.Context) {
	ticker := time.NewTicker(slow)
	defer ticker.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ticks := 1; ; {
		var due <-chan time.Time
		if len(r.queue) > 0 {
			timer.Reset(time.Until(r.ended.Add(pace)))
			due = timer.C
		}
		select {
		case <-ctx.Done():
			return
		case <-r.tailer.changed:
			r.update()
		case path := <-r.watch.Events():
			if t := r.byPath[path]; t != nil {
				r.enqueue(t)
			}
		case <-ticker.C:
			r.check(ctx, ticks%slowAll == 0)
			ticks++
		case <-due:
			r.batches()
		}
	}
}

// update opens newly followed instances and closes those that are not followed any more.
func (r *batch) update() {
	r.tailer.mu.Lock()
	defer r.tailer.mu.Unlock()
	for inst, t := range r.open {
		if _, still := r.tailer.followed[inst]; !still {
			r.close(t)
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
func (r *batch) start(inst pod.Instance) {
	c := newConverter(r.tailer.dirs, inst, r.tailer.rotation)
	if _, err := os.Lstat(c.rawPath(stdout)); errors.Is(err, os.ErrNotExist) {
		delete(r.tailer.followed, inst)
		return
	}
	t := &tail{inst: inst, conv: c}
	r.open[inst] = t
	r.listen(t)
	r.enqueue(t)
}

// listen watches the raw files; a terminal has none for stderr.
func (r *batch) listen(t *tail) {
	t.poll = false
	for _, s := range []stream{stdout, stderr} {
		path := t.conv.rawPath(s)
		r.byPath[path] = t
		if err := r.watch.Add(path); err != nil && (s == stdout || errors.Is(err, watch.ErrPoll)) {
			t.poll = true
		}
	}
}

func (r *batch) close(t *tail) {
	for _, s := range []stream{stdout, stderr} {
		path := t.conv.rawPath(s)
		r.watch.Remove(path)
		delete(r.byPath, path)
	}
	t.conv.close()
	t.conv = nil
	delete(r.open, t.inst)
}

func (r *batch) closeAll() {
	for _, t := range r.open {
		r.close(t)
	}
}

func (r *batch) enqueue(t *tail) {
	if !t.queued {
		t.queued = true
		r.queue = append(r.queue, t)
	}
}

// check enqueues instances that get no events, and takes over output that the shim does not copy
// any more.
func (r *batch) check(ctx context.Context, all bool) {
	for _, t := range r.open {
		if t.poll {
			r.listen(t)
		}
		if all || t.poll || t.failed {
			r.enqueue(t)
		}
		if all || t.doubt {
			t.doubt = false
			r.rescue(ctx, t)
		}
	}
}

// batches gives each instance that is due one batch.
func (r *batch) batches() {
	due := r.queue
	r.queue = nil
	behind := false
	for _, t := range due {
		t.queued = false
		if t.conv == nil {
			continue
		}
		more, err := t.conv.batch(r.buffers, false)
		if t.conv.rotated {
			t.conv.rotated = false
			r.tailer.rotated(t.conv.logPath)
		}
		r.reportPassed(t)
		r.judge(t, err)
		if more || errors.Is(err, errBusy) {
			r.enqueue(t)
		}
		behind = behind || more
	}
	r.ended = time.Now()
	if behind {
		r.ended = r.ended.Add(-pace)
	}
}

// reportPassed logs once per instance that some of its output is left out of the log.
func (r *batch) reportPassed(t *tail) {
	if t.conv.passed > 0 && !t.flooded {
		t.flooded = true
		r.tailer.log.Warn("container output is left out of its log: "+
			"it is written faster than it can be converted, and rotation would have removed it",
			"pod", t.inst.Key, "container", t.inst.Container, "attempt", t.inst.Attempt, "bytes", t.conv.passed)
	}
}

// judge logs an error once, and the recovery from it.
func (r *batch) judge(t *tail, err error) {
	switch {
	case errors.Is(err, errBusy):
	case errors.Is(err, errGone):
		r.tailer.drop(func(i pod.Instance) bool { return i == t.inst })
	case err != nil && !t.failed:
		t.failed = true
		r.tailer.log.Error("cannot write a container's log; no output is lost, retrying",
			"pod", t.inst.Key, "container", t.inst.Container, "attempt", t.inst.Attempt, "err", err)
	case err == nil && t.failed:
		t.failed, t.doubt = false, true
		r.tailer.log.Info("writing a container's log works again",
			"pod", t.inst.Key, "container", t.inst.Container, "attempt", t.inst.Attempt)
	}
}
