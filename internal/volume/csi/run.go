package csi

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"podrun.io/podrun/internal/sys/errtext"
)

// The kinds of calls.
const (
	publishing   = "publishing"
	unpublishing = "unpublishing"
	creating     = "creating"
)

const (
	// firstRetry is when the volumes of a driver that did not unpublish one are tried again; the time doubles up
	// to lastRetry, as in the kubelet.
	firstRetry = 500 * time.Millisecond
	lastRetry  = 2*time.Minute + 2*time.Second
	// impatience is how long anybody waits for a driver that keeps somebody else waiting.
	impatience = 100 * time.Millisecond
	// renewal is how often volumes are published again whose CSIDriver requires that.
	renewal = time.Minute
)

// call is a call for a volume. It goes on when its caller waits no longer.
type call struct {
	kind string
	done chan struct{}
	err  error // valid when done is closed
	late bool  // a caller has stopped waiting
}

// do calls f for a volume, unless a call of the kind is in progress for it, and waits for its end. There is one call
// at a time for a volume.
func (d *Drivers) do(ctx context.Context, r Record, kind string, f func(context.Context, Record) error) error {
	d.mu.Lock()
	wait := patience
	if d.late[r.Driver] > 0 {
		wait = impatience
	}
	d.mu.Unlock()
	enough := time.NewTimer(wait)
	defer enough.Stop()
	for {
		c := d.begin(ctx, r, kind, f)
		select {
		case <-c.done:
			if c.kind == kind {
				return c.err
			}
			continue
		case <-ctx.Done():
		case <-enough.C:
		}
		d.leave(r, c)
		return fmt.Errorf("CSI driver %s: %s goes on; the driver has not answered yet", r.Driver, c.kind)
	}
}

// leave waits no longer for a call.
func (d *Drivers) leave(r Record, c *call) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !c.late && d.calls[r.file()] == c {
		c.late = true
		d.late[r.Driver]++
	}
}

// begin begins a call for a volume, unless one is in progress, and returns the one that is in progress then.
func (d *Drivers) begin(ctx context.Context, r Record, kind string, f func(context.Context, Record) error) *call {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.calls[r.file()]
	if c == nil {
		c = &call{kind: kind, done: make(chan struct{})}
		d.calls[r.file()] = c
		go d.perform(context.WithoutCancel(ctx), r, c, f)
	}
	return c
}

// perform makes a call.
func (d *Drivers) perform(ctx context.Context, r Record, c *call, f func(context.Context, Record) error) {
	c.err = f(ctx, r)
	d.mu.Lock()
	delete(d.calls, r.file())
	late := c.late
	if late {
		if d.late[r.Driver]--; d.late[r.Driver] == 0 {
			delete(d.late, r.Driver)
		}
	}
	d.mu.Unlock()
	close(c.done)
	if c.err != nil {
		d.o.Log.Debug("a call of a CSI driver failed", "driver", r.Driver, "pod", r.Pod.String(), "volume", r.Volume, "err", c.err)
	}
	if late {
		d.change()
	}
}

// Run unpublishes, until ctx ends, the volumes of pods that are gone, whose drivers could not be called when their
// pods were removed.
func (d *Drivers) Run(ctx context.Context) error {
	defer d.close()
	d.write()
	wait, due := firstRetry, time.After(0)
	var renew <-chan time.Time
	if d.o.Dir != "" {
		t := time.NewTicker(renewal)
		defer t.Stop()
		renew = t.C
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.attention:
			wait = firstRetry
		case <-due:
			wait = min(2*wait, lastRetry)
		case <-renew:
			d.renew(ctx)
			continue
		}
		due = nil
		if left := d.sweep(ctx); left {
			due = time.After(wait)
		}
	}
}

// sweep calls the drivers of the volumes that no pod has any more, and reports whether volumes are left. It waits for
// none of them.
func (d *Drivers) sweep(ctx context.Context) (left bool) {
	all, err := d.records.list("")
	if left = err != nil; left && !errtext.Same(err, d.unread) {
		d.o.Log.Warn("volumes of removed pods may not be unpublished", "err", err)
	}
	d.unread = err
	for _, r := range all {
		if !r.Released && !d.records.isGone(r.UID) {
			continue
		}
		left = true
		// A pod with the same UID may have the volume by now.
		err := d.records.update(r, func(r *Record) { r.Released = r.Released || d.records.isGone(r.UID) })
		if err != nil {
			d.o.Log.Warn("the volume of a removed pod is not unpublished", "volume", r.Volume, "err", err)
			continue
		}
		d.begin(ctx, r, unpublishing, d.unpublish)
	}
	return left
}

// Renew remembers what a running pod asks for, if it is to be asked for again: its Secret may have changed.
func (d *Drivers) Renew(r Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.refused() != nil {
		return // what it was before is asked for again
	}
	if r.Driver != nil && r.Driver.Spec.RequiresRepublish != nil && *r.Driver.Spec.RequiresRepublish {
		d.renewed[r.record().file()] = r
	} else {
		delete(d.renewed, r.record().file())
	}
}

// renew calls the drivers that want to be called again, for the volumes that they have published. It waits for none
// of them.
func (d *Drivers) renew(ctx context.Context) {
	d.mu.Lock()
	all := slices.Collect(maps.Values(d.renewed))
	d.mu.Unlock()
	for _, r := range all {
		record, found, err := d.records.read(r.record())
		with, missing := d.driver(r.Source.Driver)
		if err != nil || !found || !record.Published || record.Released || missing != nil || !r.isOf(record) {
			continue // what another edit of the document names is for pods that start
		}
		d.begin(ctx, record, publishing, func(ctx context.Context, record Record) error {
			err := d.publish(ctx, with, r, record)
			if err != nil {
				d.o.Log.Warn("a driver does not publish a volume of a running pod again, which keeps what it has",
					"pod", record.Pod.String(), "volume", record.Volume, "err", err)
			}
			return err
		})
	}
}
