package images

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/revisions"
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

// The bounds of what registries may take.
const (
	askTime  = time.Minute
	pullTime = 15 * time.Minute
	atOnce   = 8 // workloads
)

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
func (u *Updater) check(ctx context.Context) {
	u.mu.Lock()
	want := u.want
	u.mu.Unlock()
	ask := u.asker()
	var asking errgroup.Group
	asking.SetLimit(atOnce)
	for _, id := range slices.SortedFunc(maps.Keys(want.AutoUpdates), compare) {
		logins, _ := want.Objects.Logins(want.AutoUpdates[id].Pod)
		asking.Go(func() error {
			if newer := u.newer(ctx, want.AutoUpdates[id], ask, logins); len(newer) > 0 && ctx.Err() == nil {
				u.Record.Newer(id, newer)
			}
			return nil
		})
	}
	_ = asking.Wait()
}

// newer returns the digests of the newer images of one workload that it has fetched, by reference.
func (u *Updater) newer(ctx context.Context, a workload.AutoUpdate, ask ask, logins [][]byte) map[string]string {
	all := map[string]string{}
	for _, ref := range slices.Sorted(maps.Keys(a.Images)) {
		now, err := ask(ctx, ref, logins)
		if err == nil && now != a.Images[ref] && now != a.Failed[ref] {
			err = u.update(ctx, a, ref, now, logins)
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

// ask asks a registry for the digest of an image.
type ask func(ctx context.Context, ref string, logins [][]byte) (string, error)

// asker returns an ask that asks once for the same credentials.
func (u *Updater) asker() ask {
	type answer struct {
		once   sync.Once
		digest string
		err    error
	}
	var mu sync.Mutex
	answers := map[string]*answer{}
	return func(ctx context.Context, ref string, logins [][]byte) (string, error) {
		key := fmt.Sprintf("%s %q", ref, logins)
		mu.Lock()
		known := answers[key]
		if known == nil {
			known = &answer{}
			answers[key] = known
		}
		mu.Unlock()
		known.once.Do(func() {
			asking, cancel := context.WithTimeout(ctx, askTime)
			defer cancel()
			known.digest, known.err = u.Images.RegistryDigest(asking, ref, logins...)
		})
		return known.digest, known.err
	}
}

func compare(a, b workload.ID) int {
	return cmp.Or(a.Key.Compare(b.Key), cmp.Compare(a.Kind, b.Kind))
}

// update fetches the image with the digest now, which is another one than the pods run, or records an event about it.
// What ref refers to on this machine stays as it is: other pods may run it.
func (u *Updater) update(ctx context.Context, a workload.AutoUpdate, ref, now string, logins [][]byte) error {
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
	pulling, cancel := context.WithTimeout(ctx, pullTime)
	defer cancel()
	if _, err := u.Images.Pull(pulling, revisions.Pinned(ref, now), logins...); err != nil {
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
