// Package gc removes unused images, by age and when the disk fills, and then what interrupted pulls
// have fetched; it removes the logs of removed pods, through Logs, which orphangc.Collector
// implements; and it reports disk pressure. Everything else that a pod has is removed with the pod,
// by package reconcile.
//
// Start reading at Keeper: Run inspects disks and images periodically, Want sets which images are
// in use.
package gc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/sys"
)

// Images are the runtime's images.
type Images interface {
	// ListImages returns all images.
	ListImages(ctx context.Context) ([]pod.StoredImage, error)
	// RemoveImage removes an image that no container uses. Its space is free when RemoveImage
	// returns.
	RemoveImage(ctx context.Context, name string, force bool) (string, error)
	// HoldImage makes sure that an image by digest stays when the tag under which it is stored comes to refer to
	// another one. It does nothing if no tag of its repository refers to it.
	HoldImage(ctx context.Context, ref string) error
	// DropFetched removes what interrupted pulls have fetched, and returns the number of these
	// pulls. The space is free when it returns.
	DropFetched(ctx context.Context) (int, error)
}

// Disk is a file system whose free space is monitored.
type Disk struct {
	// Name is the kubelet's name for the file system: nodefs or imagefs.
	Name string
	// Path is a directory on it.
	Path string
	// Images means that images are on it, so that removing them frees space. Logs means the same of
	// pods' logs.
	Images, Logs bool
}

// Disks returns the disks of podrun's data, of the pods' logs and of images. images is "" if they are
// on the file system of the data.
func Disks(data, logs, images string) []Disk {
	disks := []Disk{{Name: "nodefs", Path: data, Images: images == ""}, {Name: "logfs", Path: logs, Logs: true}}
	if images != "" {
		disks = append(disks, Disk{Name: "imagefs", Path: images, Images: true})
	}
	return disks
}

// Policy says when images and logs are removed. The percentages High and Low are of the used space
// on the images' file system.
type Policy struct {
	// High is the usage from which on images are removed until Low is reached; 100: never for
	// space.
	High, Low int
	// MinAge is how long an unused image is kept in any case. MaxAge is after how long it is
	// removed in any case; 0: never for its age.
	MinAge, MaxAge time.Duration
	// LeastFree is the percentage that must be free on every disk. If less is free, there is disk
	// pressure, and all unused images and all logs of removed pods are removed. 0: never.
	LeastFree int
	// LogAge is how long the logs of removed pods are kept; 0: they are removed with the pod.
	LogAge time.Duration
}

// Options configure a Keeper.
type Options struct {
	Images Images
	Logs   Logs // may be nil
	Disks  []Disk
	Policy Policy
	// Record is the file in which the time of each image's last use is saved.
	Record string
	Log    *slog.Logger
}

// The periods of inspections; those of disks and images are the kubelet's.
const (
	diskPeriod  = 10 * time.Second
	imagePeriod = 5 * time.Minute
	// pressedPeriod is how often space is freed during disk pressure.
	pressedPeriod = time.Minute
)

// Keeper removes unused images and old logs, and monitors the disks. Its methods may be called
// concurrently.
type Keeper struct {
	o       Options
	stat    func(path string) (usage, error)
	changed chan struct{} // wakes Run when the wanted images are complete

	mu       sync.Mutex
	wanted   []string
	sure     bool
	toHold   map[string]bool      // references by digest; false: it is held
	needed   map[string]time.Time // when an image was wanted last, since the last inspection of images
	disks    map[string]usage
	pressure map[string]string // the cause of the pressure, by the disk's name
	removed  map[string]int    // number of removed images, by reason

	// Only Run uses these.
	lastUsed map[string]time.Time
	checked  time.Time // when images were inspected last
	full     bool      // a warning was logged that no image can be removed, and there has been no space since
	cleared  time.Time // when logs were inspected last
}

// The reasons for which images are removed.
const (
	ReasonAge   = "age"
	ReasonSpace = "space"
)

// New returns a Keeper. It does nothing until Run is called.
func New(o Options) *Keeper {
	return &Keeper{
		o:        o,
		stat:     statfs,
		changed:  make(chan struct{}, 1),
		needed:   map[string]time.Time{},
		disks:    map[string]usage{},
		pressure: map[string]string{},
		toHold:   map[string]bool{},
		removed:  map[string]int{ReasonAge: 0, ReasonSpace: 0},
		lastUsed: map[string]time.Time{},
	}
}

// Want sets which images are needed, by any of their names. While sure is false, there may be more
// of them, and no image is removed.
func (k *Keeper) Want(refs []string, sure bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	for name := range fullNames(k.wanted) { // wanted until now: a job may start and end between two inspections
		k.needed[name] = now
	}
	if k.wanted, k.sure = refs, sure; sure {
		k.wake()
	}
}

// Hold sets which images, by references with digests, must not be lost when their tags come to refer to other ones.
// That they are needed, Want says too.
func (k *Keeper) Hold(refs []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	all, more := map[string]bool{}, false
	for _, ref := range refs {
		due, known := k.toHold[ref]
		all[ref] = due || !known
		more = more || !known
	}
	k.toHold = all
	if more {
		k.wake()
	}
}

// wake has Run look again.
func (k *Keeper) wake() {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// hold holds what is to be held. What fails is tried again.
func (k *Keeper) hold(ctx context.Context) {
	k.mu.Lock()
	var due []string
	for ref, is := range k.toHold {
		if is {
			due = append(due, ref)
		}
	}
	k.mu.Unlock()
	for _, ref := range due {
		if err := k.o.Images.HoldImage(ctx, ref); err != nil {
			k.o.Log.Debug("an image that a rollback would run cannot be held", "image", ref, "err", err)
			continue
		}
		k.mu.Lock()
		if _, still := k.toHold[ref]; still {
			k.toHold[ref] = false
		}
		k.mu.Unlock()
	}
}

// Pressure returns an error that names the disks with too little space; nil if there are none.
func (k *Keeper) Pressure() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []error
	for _, name := range slices.Sorted(maps.Keys(k.pressure)) {
		all = append(all, fmt.Errorf("%s: %s", name, k.pressure[name]))
	}
	return errors.Join(all...)
}

// Usage is the usage of a disk when it was inspected last.
type Usage struct {
	Name                string
	Capacity, Available uint64 // bytes
	Pressed             bool
}

// Disks returns the usage of the disks that have been inspected, sorted by name.
func (k *Keeper) Disks() []Usage {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []Usage
	for _, name := range slices.Sorted(maps.Keys(k.disks)) {
		u := k.disks[name]
		out = append(out, Usage{
			Name:      name,
			Capacity:  u.capacity,
			Available: u.available,
			Pressed:   k.pressure[name] != "",
		})
	}
	return out
}

// Removed returns the number of images that were removed, by reason.
func (k *Keeper) Removed() map[string]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.removed)
}

// Run inspects disks, images and logs until ctx ends, and returns ctx's error.
func (k *Keeper) Run(ctx context.Context) error {
	k.recall()
	k.checked = time.Now() // do not inspect images before the sources have reported which are wanted
	tick := time.NewTicker(diskPeriod)
	defer tick.Stop()
	for {
		k.hold(ctx)
		pressed := k.check()
		period := imagePeriod
		if pressed {
			period = pressedPeriod
		}
		crowded := pressed || k.over()
		k.full = k.full && crowded
		if crowded && !k.full || time.Since(k.checked) >= period {
			k.images(ctx, pressed)
		}
		k.logs(ctx)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		case <-k.changed:
		}
	}
}

// check inspects the disks and logs changes of pressure. It reports whether a disk with images is
// under pressure.
func (k *Keeper) check() (pressed bool) {
	for _, d := range k.o.Disks {
		now, err := k.stat(d.Path)
		if err != nil {
			k.o.Log.Debug("disk usage cannot be read", "disk", d.Name, "path", d.Path, "err", err)
			continue
		}
		why := now.pressed(k.o.Policy.LeastFree)
		k.mu.Lock()
		before := k.pressure[d.Name]
		k.disks[d.Name] = now
		delete(k.pressure, d.Name)
		if why != "" {
			k.pressure[d.Name] = why
		}
		k.mu.Unlock()
		switch {
		case why != "" && before == "":
			k.full = false
			k.o.Log.Warn("a disk is nearly full", "disk", d.Name, "path", d.Path, "reason", why)
		case why == "" && before != "":
			k.o.Log.Info("a disk has space again", "disk", d.Name, "path", d.Path)
		}
		pressed = pressed || why != "" && d.Images
	}
	return pressed
}

// images removes the images that have reached MaxAge and, if the disk is too full, as many more as
// necessary.
func (k *Keeper) images(ctx context.Context, pressed bool) {
	s, sure, err := k.see(ctx)
	if err != nil {
		k.o.Log.Warn("listing images for garbage collection failed", "err", err)
		return
	}
	k.checked = s.now
	if !sure {
		return
	}
	if old := k.o.Policy.MaxAge; old > 0 {
		for _, i := range s.unused(old) {
			k.remove(ctx, i, ReasonAge)
		}
	}
	target := k.o.Policy.Low
	if pressed {
		target = -1
	} else if !k.over() {
		return
	}
	for _, i := range s.unused(k.o.Policy.MinAge) {
		if used, known := k.used(); !known || used <= target || ctx.Err() != nil {
			return
		}
		k.remove(ctx, i, ReasonSpace)
	}
	if used, known := k.used(); known && used > target {
		k.dropFetched(ctx)
	}
	if used, _ := k.used(); used > target && !k.full {
		k.full = true
		k.o.Log.Warn("the images' disk is too full and there is no unused image to remove",
			"used", fmt.Sprintf("%d%%", used))
	}
}

// dropFetched frees space when there is no unused image left to remove.
func (k *Keeper) dropFetched(ctx context.Context) {
	dropped, err := k.o.Images.DropFetched(ctx)
	if dropped > 0 {
		k.full = false
		k.o.Log.Info("removed the content of interrupted pulls", "pulls", dropped)
	}
	if err != nil {
		k.o.Log.Warn("removing the content of interrupted pulls failed", "err", err)
	}
}

// over reports whether the usage of the images' disk has reached Policy.High.
func (k *Keeper) over() bool {
	used, known := k.used()
	return known && used >= k.o.Policy.High && k.o.Policy.High < 100
}

// used returns the usage of the images' disk in percent.
func (k *Keeper) used() (percent int, known bool) {
	for _, d := range k.o.Disks {
		if d.Images {
			now, err := k.stat(d.Path)
			return now.usedPercent(), err == nil
		}
	}
	return 0, false
}

// see lists the images and saves which are in use now.
func (k *Keeper) see(ctx context.Context) (s observation, sure bool, err error) {
	k.mu.Lock()
	s.wanted, sure = fullNames(k.wanted), k.sure
	needed := k.needed
	k.needed = map[string]time.Time{}
	k.mu.Unlock()
	maps.Copy(k.lastUsed, needed)
	s.now = time.Now()
	if s.images, err = k.o.Images.ListImages(ctx); err != nil {
		return s, false, err
	}
	known := map[string]time.Time{}
	for _, i := range s.images {
		if i.Used || s.wants(i) {
			known[i.Name] = s.now
		} else if at, ok := k.lastUsed[i.Name]; ok {
			known[i.Name] = at
		}
	}
	s.lastUsed, k.lastUsed = known, known
	text, err := json.Marshal(known)
	if err == nil {
		err = sys.WriteFile(k.o.Record, text, 0o600)
	}
	if err != nil {
		k.o.Log.Debug("saving when images were used last failed", "err", err) // as on a full disk
	}
	return s, sure, nil
}

// recall loads when images were used last. An image without a record counts as unused since its
// creation.
func (k *Keeper) recall() {
	text, err := os.ReadFile(k.o.Record)
	if err == nil {
		err = json.Unmarshal(text, &k.lastUsed)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.o.Log.Warn("loading when images were used last failed", "err", err)
	}
	if k.lastUsed == nil {
		k.lastUsed = map[string]time.Time{}
	}
}

func (k *Keeper) remove(ctx context.Context, i pod.StoredImage, reason string) {
	if _, err := k.o.Images.RemoveImage(ctx, i.Name, false); err != nil {
		if !errors.Is(err, runtime.ErrNotFound) { // for example, just removed for its age
			k.o.Log.Warn("removing an unused image failed", "image", i.Name, "err", err)
		}
		return
	}
	k.mu.Lock()
	k.removed[reason]++
	k.mu.Unlock()
	k.full = false
	k.o.Log.Info("removed an unused image", "image", i.Name, "reason", reason)
}

func statfs(path string) (usage, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return usage{}, err
	}
	size := uint64(st.Bsize)
	return usage{capacity: st.Blocks * size, available: st.Bavail * size, files: st.Files, filesFree: st.Ffree}, nil
}
