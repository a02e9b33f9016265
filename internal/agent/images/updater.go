package images

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/schedule"
)

// UpdateTimes say when registries are asked. The zero value: never.
type UpdateTimes struct {
	schedule *schedule.Schedule
	// jitter is the maximum of the random time by which each of these times is put off, so that not all machines ask
	// at the same time.
	jitter time.Duration
}

// Set sets the times to those of a schedule, in the form of a CronJob's, each put off by up to jitter; "": never.
func (t *UpdateTimes) Set(text string, jitter time.Duration) error {
	*t = UpdateTimes{jitter: jitter}
	if text == "" {
		return nil
	}
	times, err := schedule.New(text, nil)
	t.schedule = &times
	return err
}

// Record gets the digests of newer images, which are on this machine, and to which the pods of a workload are to be
// updated. record.Record implements it.
type Record interface {
	Newer(id workload.ID, digests map[string]string)
}

// Events records events. event.Recorder implements it.
type Events interface{ Record(e pod.Event) }

// Updater asks registries whether the references of the images of pods with pod.AnnotationAutoUpdate refer to other
// images than before, and fetches those that pods are to be updated to. Which revision of the pods then runs package
// rollback decides.
type Updater struct {
	Times  UpdateTimes
	Images runtime.Images
	Record Record
	Events Events
	// Wall is the wall clock, which may be set. nil: the machine's.
	Wall func() time.Time
	Log  *slog.Logger

	mu   sync.Mutex
	want manifest.Desired
	// notified are the images of which there are events, mostNotified at most.
	notified map[string]bool
}

// Want sets the pods that are desired.
func (u *Updater) Want(d manifest.Desired) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.want = d
}

const mostNotified = 1000

// Run asks at each time of the schedule, until ctx ends, and returns ctx's error.
func (u *Updater) Run(ctx context.Context) error {
	if u.Times.schedule == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	if u.Wall == nil {
		u.Wall = time.Now
	}
	u.notified = map[string]bool{}
	began := u.Wall()
	for {
		if err := u.await(ctx, began); err != nil {
			return err
		}
		u.check(ctx)
	}
}

// longestSleep bounds a sleep: the wall clock may be set meanwhile.
const longestSleep = time.Minute

// await waits until the next time of the schedule. The times of @every count from began.
func (u *Updater) await(ctx context.Context, began time.Time) error {
	from := u.Wall()
	late := time.Duration(rand.Int64N(int64(u.Times.jitter) + 1))
	for {
		now := u.Wall()
		if now.Before(from) { // it was set back
			from = now
		}
		wait := longestSleep
		if due := u.Times.schedule.Next(began, from); !due.IsZero() {
			wait = min(wait, due.Add(late).Sub(now))
		}
		if wait <= 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// check asks about all images, each once, and reports what it has fetched. A registry that takes long delays no other.
// The order is another one each time: if many take long, those that come last are not the same ones every time.
func (u *Updater) check(ctx context.Context) {
	u.mu.Lock()
	want := u.want
	u.mu.Unlock()
	ids := slices.Collect(maps.Keys(want.AutoUpdates))
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	all := newRegistries(u.Images)
	var asking sync.WaitGroup
	for _, id := range ids {
		a := want.AutoUpdates[id]
		logins, _ := want.Objects.Logins(a.Pod)
		asking.Go(func() {
			if newer := u.newer(ctx, all.client(logins), a); len(newer) > 0 && ctx.Err() == nil {
				u.Record.Newer(id, newer)
			}
		})
	}
	asking.Wait()
}

// newer returns the digests of the newer images of one workload that it has fetched, by reference.
func (u *Updater) newer(ctx context.Context, c *client, a workload.AutoUpdate) map[string]string {
	all := map[string]string{}
	for _, ref := range slices.Sorted(maps.Keys(a.Images)) {
		now, err := c.digest(ctx, ref)
		if err == nil && now != a.Images[ref] && now != a.Failed[ref] {
			err = u.update(ctx, c, a, ref, now)
			if err == nil && !a.Notify {
				all[ref] = now
			}
		}
		if err != nil && ctx.Err() == nil {
			u.Log.Warn("an image cannot be updated", "image", ref, "pod", pod.KeyOf(a.Pod), "err", err)
			u.record(a, true, "AutoUpdateFailed", fmt.Sprintf("Image %q: %v", ref, err))
		}
	}
	return all
}

// update fetches the image with the digest now, which is another one than the pods run, or records an event about it.
// What ref refers to on this machine stays as it is: other pods may run it.
func (u *Updater) update(ctx context.Context, c *client, a workload.AutoUpdate, ref, now string) error {
	has := a.Images[ref]
	if a.Notify {
		u.mu.Lock()
		defer u.mu.Unlock()
		if key := fmt.Sprint(pod.KeyOf(a.Pod), ref, now); !u.notified[key] {
			if len(u.notified) >= mostNotified { // a registry may invent images
				clear(u.notified)
			}
			u.notified[key] = true
			u.record(a, false, "ImageOutdated", fmt.Sprintf("Image %q is %s in its registry; %s runs", ref, now, has))
		}
		return nil
	}
	if err := c.pull(ctx, ref, now); err != nil {
		return err
	}
	u.Log.Info("a newer image was pulled", "image", ref, "pod", pod.KeyOf(a.Pod), "digest", now, "before", has)
	u.record(a, false, "ImageUpdated", fmt.Sprintf("Pulled image %q, which is %s now instead of %s", ref, now, has))
	return nil
}

func (u *Updater) record(a workload.AutoUpdate, warning bool, reason, message string) {
	u.Events.Record(pod.Event{
		Key: pod.KeyOf(a.Pod), UID: a.Pod.UID, Warning: warning, Reason: reason, Message: message,
	})
}
