package probe

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// watch is one probe of one instance.
type watch struct {
	kind string
	spec *v1.Probe
	tally
}

// watch runs one probe repeatedly until ctx ends or the probe is finished: a startup probe finishes
// with its first result, and a liveness probe when it has failed.
func (p *Prober) watch(ctx context.Context, out chan<- pod.Key, i *instance, w watch) {
	if w.kind != startup && !await(ctx, i.started) || !pause(ctx, p.delay(i, w)) {
		return
	}
	every := time.NewTicker(max(time.Duration(w.spec.PeriodSeconds)*time.Second, time.Second))
	defer every.Stop()
	for {
		began := time.Now()
		a := p.askPatiently(ctx, i, w.spec)
		if ctx.Err() != nil {
			return
		}
		p.observe(i, w.kind, a, time.Since(began))
		p.say(i, w, a)
		if a.outcome == warned {
			a.outcome = succeeded
		}
		if w.add(a.outcome, w.spec) {
			if p.note(i, w.kind, a) {
				select {
				case out <- i.key:
				case <-ctx.Done():
					// The result is stored in any case.
				}
			}
			if w.kind == startup || w.kind == liveness && a.outcome == failed {
				return
			}
		}
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
	}
}

// delay returns the pause before the first request. Liveness probes of instances that ran before
// this podrun process are spread over a period, so that they do not all run at once.
func (p *Prober) delay(i *instance, w watch) time.Duration {
	left := time.Duration(w.spec.InitialDelaySeconds)*time.Second - time.Since(i.StartedAt)
	if w.kind == liveness && i.StartedAt.Before(p.began) {
		left = max(left, spread(i.ID, max(time.Duration(w.spec.PeriodSeconds)*time.Second, time.Second)))
	}
	return left
}

// spread returns a part of d that depends on the ID only, so that the timing can be reproduced.
func spread(id string, d time.Duration) time.Duration {
	sum := sha256.Sum256([]byte(id))
	return time.Duration(float64(d) * float64(binary.BigEndian.Uint32(sum[:])) / (1 << 32))
}

// attempts is how often a request is tried whose outcome is unknown, as in the kubelet.
const attempts = 3

func (p *Prober) askPatiently(ctx context.Context, i *instance, spec *v1.Probe) (a answer) {
	for range attempts {
		p.mu.Lock()
		target := i.Target
		p.mu.Unlock()
		a = p.ask(ctx, &target, spec)
		if a.outcome != unknown || ctx.Err() != nil {
			break
		}
	}
	return a
}

// say records and logs an outcome. Every outcome that is not a success is an event, as in the
// kubelet; only the first one in a row is logged as a warning.
func (p *Prober) say(i *instance, w watch, a answer) {
	if a.outcome != succeeded {
		reason := "Unhealthy"
		if a.outcome == warned {
			reason = "ProbeWarning"
		}
		p.events.Record(pod.Event{
			Key: i.key, UID: i.Pod.UID, Container: i.Container.Name, Init: pod.IsInit(i.Pod, i.Container.Name),
			Warning: true, Reason: reason,
			Message: strings.ToUpper(w.kind[:1]) + w.kind[1:] + " probe " + notWell[a.outcome] + ": " +
				strings.TrimRight(a.message, ": \n"),
		})
	}
	level := slog.LevelDebug
	if a.outcome != w.last && (a.outcome == failed || a.outcome == unknown) {
		level = slog.LevelWarn
	}
	p.log.Log(context.Background(), level, "probe result", "pod", i.key.String(), "container", i.Container.Name,
		"probe", w.kind, "outcome", a.outcome.String(), "message", a.message)
}

// notWell holds the words for outcomes in event messages.
var notWell = map[outcome]string{failed: "failed", unknown: "errored", warned: "warning"}

// note stores the result of a probe and reports whether it is new.
func (p *Prober) note(i *instance, kind string, a answer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	good, f := a.outcome == succeeded, &i.results
	switch {
	case kind == readiness:
		if f.Ready != nil && *f.Ready == good {
			return false
		}
		f.Ready, f.Since = &good, time.Now()
		return true
	case kind == startup:
		f.Started, f.Since = &good, time.Now()
		if good {
			close(i.started)
			return true
		}
	case good:
		return false
	}
	f.Failed = &pod.Failed{
		Why: fmt.Sprintf("failed %s probe", kind), Message: a.message, Grace: grace(i.Container, kind),
	}
	return true
}

// grace returns the probe's own termination grace period; nil if it has none.
func grace(c *v1.Container, kind string) *time.Duration {
	seconds := probesOf(c)[kind].TerminationGracePeriodSeconds
	if seconds == nil {
		return nil
	}
	return new(pod.Seconds(*seconds))
}

func await(ctx context.Context, event <-chan struct{}) bool {
	select {
	case <-event:
		return true
	case <-ctx.Done():
		return false
	}
}

// pause waits for d and reports whether ctx is still active.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
