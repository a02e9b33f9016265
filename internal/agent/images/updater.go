package images

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

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
	// notified are the images of which there are events. Only Run uses it.
	notified map[string]bool
}

// The bounds of what registries may take.
const (
	askTime  = time.Minute
	pullTime = time.Hour
)

// Want sets the pods that are desired.
func (u *Updater) Want(d manifest.Desired) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.want = d
}

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

// check asks about all images, each once, and reports what it has fetched.
func (u *Updater) check(ctx context.Context) {
	u.mu.Lock()
	want := u.want
	u.mu.Unlock()
	ask := u.asker()
	for _, id := range slices.SortedFunc(maps.Keys(want.AutoUpdates), compare) {
		a := want.AutoUpdates[id]
		logins, _ := want.Objects.Logins(a.Pod)
		newer := map[string]string{}
		for _, ref := range slices.Sorted(maps.Keys(a.Images)) {
			now, err := ask(ctx, ref, logins)
			if err == nil && now != a.Images[ref] {
				newer[ref], err = u.update(ctx, a, ref, now, logins)
			}
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				u.Log.Warn("an image cannot be updated", "image", ref, "pod", pod.KeyOf(a.Pod), "err", err)
				u.record(a, true, "AutoUpdateFailed", fmt.Sprintf("Image %q: %v", ref, err))
			}
			if newer[ref] == "" {
				delete(newer, ref)
			}
		}
		if len(newer) > 0 {
			u.Record.Newer(id, newer)
		}
	}
}

// asker returns a function that asks a registry for the digest of an image, once for the same credentials.
func (u *Updater) asker() func(ctx context.Context, ref string, logins [][]byte) (string, error) {
	type answer struct {
		digest string
		err    error
	}
	answers := map[string]answer{}
	return func(ctx context.Context, ref string, logins [][]byte) (string, error) {
		key := fmt.Sprintf("%s %q", ref, logins)
		known, is := answers[key]
		if !is {
			asking, cancel := context.WithTimeout(ctx, askTime)
			defer cancel()
			known.digest, known.err = u.Images.RegistryDigest(asking, ref, logins...)
			answers[key] = known
		}
		return known.digest, known.err
	}
}

func compare(a, b workload.ID) int {
	return cmp.Or(a.Key.Compare(b.Key), cmp.Compare(a.Kind, b.Kind))
}

// update fetches the image that ref refers to, which now is another one than the pods run, and returns its digest; ""
// if the pods are not updated.
func (u *Updater) update(
	ctx context.Context, a workload.AutoUpdate, ref, now string, logins [][]byte,
) (string, error) {
	has := a.Images[ref]
	if a.Notify {
		if key := fmt.Sprint(pod.KeyOf(a.Pod), ref, now); !u.notified[key] {
			u.notified[key] = true
			u.record(a, false, "ImageOutdated", fmt.Sprintf("Image %q is %s in its registry; %s runs", ref, now, has))
		}
		return "", nil
	}
	pulling, cancel := context.WithTimeout(ctx, pullTime)
	defer cancel()
	// What runs stays, so that it can run again.
	if err := u.Images.HoldImage(pulling, revisions.Pinned(ref, has)); err != nil {
		return "", err
	}
	pulled, err := u.Images.Pull(pulling, ref, logins...)
	if err != nil {
		return "", err
	}
	_, digest, _ := strings.Cut(pulled.ID, "@")
	if digest == has {
		return "", nil
	}
	u.record(a, false, "ImageUpdated", fmt.Sprintf("Pulled image %q, which is %s now instead of %s", ref, digest, has))
	return digest, nil
}

func (u *Updater) record(a workload.AutoUpdate, warning bool, reason, message string) {
	u.Events.Record(pod.Event{
		Key: pod.KeyOf(a.Pod), UID: a.Pod.UID, Warning: warning, Reason: reason, Message: message,
	})
}
