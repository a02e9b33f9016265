package relist

import "time"

// outage adds up the times in which the runtime could not be reached, or hung.
type outage struct {
	past time.Duration
	// since is when it could not be reached first; zero if it can be.
	since time.Time
	// listing is when the list in progress began; zero if there is none.
	listing time.Time
}

// begin records that the runtime cannot be reached.
func (o *outage) begin(now time.Time) {
	if o.since.IsZero() {
		o.since = now
	}
}

// listed records that a list has ended. With good the runtime works.
func (o *outage) listed(now time.Time, good bool) {
	if good {
		o.past, o.since = o.total(now), time.Time{}
	} else if hung := o.listing; now.Sub(hung) > lateAfter && (o.since.IsZero() || hung.Before(o.since)) {
		o.since = hung
	}
	o.listing = time.Time{}
}

func (o *outage) total(now time.Time) time.Duration {
	since := o.since
	if hung := o.listing; !hung.IsZero() && now.Sub(hung) > lateAfter && (since.IsZero() || hung.Before(since)) {
		since = hung
	}
	if since.IsZero() {
		return o.past
	}
	return o.past + now.Sub(since)
}

// Outage returns for how long, all in all, the runtime could not be reached, or did not answer. Nothing can become
// healthy in that time.
func (r *Relister) Outage() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.outage.total(time.Now())
}
