package gc

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// store is Images in memory, on a disk of 100 bytes.
type store struct {
	mu      sync.Mutex
	images  []pod.StoredImage
	fetched uint64 // bytes that an interrupted pull has fetched
	other   uint64 // bytes of the disk that are not images'
	listed  int    // how often images were
	held    []string
	err     error
}

func (s *store) HoldImage(_ context.Context, ref string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.held = append(s.held, ref)
	}
	return s.err
}

func (s *store) ListImages(context.Context) ([]pod.StoredImage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listed++
	return slices.Clone(s.images), s.err
}

func (s *store) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *store) DropFetched(context.Context) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fetched == 0 {
		return 0, s.err
	}
	s.fetched = 0
	return 1, s.err
}

func (s *store) RemoveImage(_ context.Context, name string, force bool) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, i := range s.images {
		if i.Name == name {
			if i.Used || force {
				return "", errors.New("used")
			}
			s.images = slices.Delete(s.images, n, n+1)
			return name, nil
		}
	}
	return "", runtime.ErrNotFound
}

func (s *store) stat(string) (usage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.other + s.fetched
	for _, i := range s.images {
		taken += uint64(i.Size)
	}
	return usage{capacity: 100, available: 100 - min(taken, 100)}, nil
}

func (s *store) names() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, i := range s.images {
		name, _, _ := strings.Cut(strings.TrimPrefix(i.Name, "docker.io/library/"), ":")
		out = append(out, name)
	}
	return strings.Join(out, " ")
}

func (s *store) use(name string, used bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := range s.images {
		if s.images[n].Name == full(name) {
			s.images[n].Used = used
		}
	}
}

func full(name string) string { return "docker.io/library/" + name + ":latest" }

// newStore has images of ten bytes, each a second younger than the one before.
func newStore(names ...string) *store {
	s := &store{}
	for n, name := range names {
		s.images = append(s.images, pod.StoredImage{Name: full(name), Size: 10, CreatedAt: time.Now().Add(time.Duration(n-100) * time.Second)})
	}
	return s
}

// keeper does not know yet what is wanted.
func keeper(t *testing.T, s *store, p Policy) *Keeper {
	return New(Options{Images: s, Disks: []Disk{{Name: "imagefs", Images: true}}, Policy: p, Record: filepath.Join(t.TempDir(), "used.json"), Log: slog.New(slog.DiscardHandler)})
}

// keep runs a Keeper on s until stop.
func keep(t *testing.T, s *store, p Policy, wanted ...string) (k *Keeper, stop func()) {
	k = keeper(t, s, p)
	k.Want(wanted, true)
	return k, run(t, k, s)
}

// run sets a Keeper to work that was told already what it has to know: it may look before run returns.
func run(t *testing.T, k *Keeper, s *store) (stop func()) {
	k.stat = s.stat
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = k.Run(ctx) })
	return func() { cancel(); running.Wait() }
}

func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func want(t *testing.T, s *store, names string) {
	t.Helper()
	if got := s.names(); got != names {
		t.Errorf("images %q, want %q", got, names)
	}
}

func TestFullDiskLosesTheLeastRecentlyUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore("a", "b", "c", "d", "used", "wanted", "pinned")
		s.images[4].Used, s.images[6].Pinned = true, true
		s.images[5].ID = "docker.io/library/wanted@sha256:" + strings.Repeat("0", 64)
		s.use("a", true) // the oldest, but used until just now
		k, stop := keep(t, s, Policy{High: 85, Low: 80, MinAge: 2 * time.Minute}, "wanted@sha256:"+strings.Repeat("0", 64))
		defer stop()
		after(6 * time.Minute)
		s.use("a", false)
		after(5 * time.Minute)
		want(t, s, "a b c d used wanted pinned") // 70 of 100
		s.fill(25)
		after(5 * time.Minute)
		want(t, s, "a d used wanted pinned") // 75
		s.fill(50)
		after(5 * time.Minute)
		want(t, s, "used wanted pinned") // it goes down to what may go
		if got := k.Removed(); got[ReasonSpace] != 4 || got[ReasonAge] != 0 {
			t.Errorf("removed %v", got)
		}
	})
}

func TestImagesGoByAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore("a", "b", "used", "wanted")
		s.use("a", true)
		s.use("used", true)
		k, stop := keep(t, s, Policy{High: 85, Low: 80, MaxAge: time.Hour}, "wanted")
		after(time.Hour)
		want(t, s, "a used wanted")
		s.use("a", false)
		after(30 * time.Minute)
		stop()
		// What was used when is remembered.
		again := New(k.o)
		again.Want([]string{"wanted"}, true)
		stop = run(t, again, s)
		defer stop()
		after(25 * time.Minute)
		want(t, s, "a used wanted")
		after(15 * time.Minute)
		want(t, s, "used wanted")
		if got := again.Removed(); got[ReasonAge] != 1 {
			t.Errorf("removed %v", got)
		}
	})
}

func TestNothingGoesUntilItIsSure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore("a", "b")
		s.fill(80)
		k := keeper(t, s, Policy{High: 85, Low: 80, MaxAge: time.Minute, LeastFree: 10})
		defer run(t, k, s)()
		after(time.Hour)
		want(t, s, "a b")
		k.Want([]string{"a"}, true)
		after(time.Minute)
		want(t, s, "a")
	})
}

func TestYoungImagesStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore("a")
		s.images[0].CreatedAt = time.Now().Add(4 * time.Minute)
		s.fill(90)
		_, stop := keep(t, s, Policy{High: 85, Low: 80, MinAge: 2 * time.Minute, LeastFree: 10})
		defer stop()
		after(5*time.Minute + 30*time.Second) // just pulled
		want(t, s, "a")
		after(2 * time.Minute)
		want(t, s, "")
	})
}

// TestPressure: under pressure, all unused images are removed at once, and the pressure is reported
// until it is over.
func TestPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore("a", "b", "c")
		s.use("c", true)
		k, stop := keep(t, s, Policy{High: 85, Low: 80, LeastFree: 10})
		defer stop()
		after(time.Minute)
		if err := k.Pressure(); err != nil {
			t.Error(err)
		}
		s.fill(69) // 99 of 100
		after(diskPeriod)
		want(t, s, "c")
		if err := k.Pressure(); err == nil || err.Error() != "imagefs: 0 MiB of 0 MiB are free, less than 10%" {
			t.Errorf("pressure: %v", err)
		}
		after(diskPeriod)
		if err := k.Pressure(); err != nil {
			t.Error(err)
		}
		s.fill(95)
		after(diskPeriod)
		if d := k.Disks(); len(d) != 1 || !d[0].Pressed || d[0].Capacity != 100 || d[0].Available != 0 {
			t.Errorf("disks: %+v", d)
		}
		s.fill(10)
		after(diskPeriod)
		if d := k.Disks(); d[0].Pressed || d[0].Available != 80 {
			t.Errorf("disks: %+v", d)
		}
	})
}

// TestRuntimeAway: an unreachable runtime does not end Run.
func TestRuntimeAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore("a")
		s.err = runtime.ErrUnavailable
		_, stop := keep(t, s, Policy{High: 85, Low: 80, MaxAge: time.Minute})
		defer stop()
		after(time.Hour)
		s.mu.Lock()
		s.err = nil
		s.mu.Unlock()
		after(5 * time.Minute)
		want(t, s, "")
	})
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		u       usage
		percent int
		pressed bool
	}{
		{usage{}, 0, false},
		{usage{capacity: 1000, available: 100}, 90, false},
		{usage{capacity: 1000, available: 99}, 90, true},
		{usage{capacity: 1000, available: 151}, 84, false},
		{usage{capacity: 1000}, 100, true},
		{usage{capacity: 1000, available: 900, files: 100, filesFree: 5}, 10, false},
		{usage{capacity: 1000, available: 900, files: 100, filesFree: 4}, 10, true},
	} {
		if got, pressed := c.u.usedPercent(), c.u.pressed(10) != ""; got != c.percent || pressed != c.pressed {
			t.Errorf("%+v: %d%%, %v", c.u, got, c.u.pressed(10))
		}
		if c.u.pressed(0) != "" {
			t.Errorf("%+v: pressed without a threshold", c.u)
		}
	}
	if u, err := statfs(t.TempDir()); err != nil || u.capacity == 0 {
		t.Errorf("%+v, %v", u, err)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	got := fullNames([]string{"web", "localhost:5000/x:1", "a/b@sha256:" + strings.Repeat("0", 64), "Not A Name"})
	for _, name := range []string{"docker.io/library/web:latest", "localhost:5000/x:1", "docker.io/a/b@sha256:" + strings.Repeat("0", 64), "Not A Name"} {
		if !got[name] {
			t.Errorf("no %s in %v", name, got)
		}
	}
}

// TestThresholdIsHeldAtOnce: the threshold applies as soon as its excess is observed, and a removal
// that cannot succeed is not repeated continually.
func TestThresholdIsHeldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore("a", "b", "wanted")
		k, stop := keep(t, s, Policy{High: 85, Low: 80}, "wanted")
		defer stop()
		after(time.Minute)
		s.fill(60)
		after(diskPeriod)
		want(t, s, "b wanted")
		s.fill(75)
		after(diskPeriod)
		want(t, s, "wanted")
		listed := s.times()
		after(imagePeriod - diskPeriod)
		if again := s.times() - listed; again != 0 {
			t.Errorf("with nothing left to remove, images were listed %d times", again)
		}
		s.fill(0)
		after(diskPeriod)
		s.fill(75)
		k.Want(nil, true)
		synctest.Wait()
		want(t, s, "")
	})
}

// TestWantedIsUsed: an image that was wanted until now counts as used until now, also for a job
// that ran between two inspections.
func TestWantedIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore("a", "b", "c")
		k, stop := keep(t, s, Policy{High: 85, Low: 80})
		defer stop()
		after(time.Minute)
		k.Want([]string{"a"}, true)
		after(time.Second)
		k.Want(nil, true)
		after(diskPeriod)
		s.fill(60)
		after(diskPeriod)
		want(t, s, "a c")
	})
}

// TestHold: what a rollback would run is held at once, once, and again if that has failed.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore("a")
		k, stop := keep(t, s, Policy{High: 85, Low: 80}, "a")
		defer stop()
		held := func(refs ...string) {
			t.Helper()
			synctest.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			if !slices.Equal(s.held, refs) {
				t.Errorf("held: %v, want %v", s.held, refs)
			}
		}
		k.Hold([]string{"a@1"})
		held("a@1")
		k.Hold([]string{"a@1", "b@1"})
		held("a@1", "b@1")
		k.Hold(nil)
		s.fail(runtime.ErrUnavailable)
		k.Hold([]string{"a@1"})
		held("a@1", "b@1")
		s.fail(nil)
		after(diskPeriod)
		held("a@1", "b@1", "a@1")
		after(time.Minute)
		held("a@1", "b@1", "a@1")
	})
}

// TestFetchedGoesLast: the content of interrupted pulls is removed after the last removable image,
// and only if there is too little space.
func TestFetchedGoesLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore("a", "wanted")
		s.fetched = 10
		_, stop := keep(t, s, Policy{High: 85, Low: 80, LeastFree: 10}, "wanted")
		defer stop()
		after(time.Hour)
		want(t, s, "a wanted")
		s.fill(55)
		after(diskPeriod)
		want(t, s, "wanted")
		if s.left() != 10 {
			t.Error("what was fetched went, though there was space without that")
		}
		s.fill(75)
		after(diskPeriod)
		if s.left() != 0 {
			t.Error("what was fetched stays")
		}
		want(t, s, "wanted")
	})
}

func (s *store) left() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fetched
}

func (s *store) times() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listed
}

// fill has something else take bytes of the disk.
func (s *store) fill(other uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.other = other
}
