// Package gc removes images that nobody needs, by age and when the disk fills, and logs of pods that are gone;
// and it tells when there is too little space. It removes nothing else: what belongs to pods goes with them.
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

// Images are those of the runtime.
type Images interface {
	// ListImages returns all images.
	ListImages(ctx context.Context) ([]pod.StoredImage, error)
	// RemoveImage removes an image that no container is made of, and its space is free then.
	RemoveImage(ctx context.Context, name string, force bool) (string, error)
	// DropFetched lets go of what interrupted pulls have fetched, and returns of how many; its space is free then.
	DropFetched(ctx context.Context) (int, error)
}

// Disk is a file system that must not fill.
type Disk struct {
	// Name is the kubelet's for it: nodefs or imagefs.
	Name string
	// Path is a directory on it.
	Path string
	// Images: images are on it, so that removing some makes space. Logs: the same of pods' logs.
	Images, Logs bool
}

// Policy says when images go. Percentages are of the images' file system that is taken.
type Policy struct {
	// High is from where on images are removed, until Low is reached; 100: never for that.
	High, Low int
	// MinAge is how long an image that is not used stays in any case, MaxAge after how long it goes in any
	// case; 0 MaxAge: not for its age.
	MinAge, MaxAge time.Duration
	// LeastFree is the percentage that has to be free on every disk; with less there is pressure, and all images
	// that may go do, and all logs of pods that are gone. 0: never.
	LeastFree int
	// LogAge is how long logs of pods that are gone stay; 0: they go with the pod.
	LogAge time.Duration
}

// Options make a Keeper.
type Options struct {
	Images Images
	Logs   Logs // may be nil
	Disks  []Disk
	Policy Policy
	// Record is the file that says when images were used last.
	Record string
	Log    *slog.Logger
}

// The periods of the kubelet.
const (
	diskPeriod  = 10 * time.Second
	imagePeriod = 5 * time.Minute
	// pressedPeriod is how often it is tried to make space while there is pressure.
	pressedPeriod = time.Minute
)

// Keeper keeps the images' disk from filling.
type Keeper struct {
	o       Options
	stat    func(path string) (usage, error)
	changed chan struct{} // it may have become sure what is wanted

	mu       sync.Mutex
	wanted   []string
	sure     bool
	needed   map[string]time.Time // when an image was wanted last, since images were looked at
	disks    map[string]usage
	pressure map[string]string // what is wrong with a disk, by its name
	removed  map[string]int    // images, by reason

	// Run's own.
	lastUsed map[string]time.Time
	checked  time.Time // at the images
	full     bool      // it was said that there is nothing to remove, and there has been no space since
	cleared  time.Time // when logs were looked at
}

// The reasons why images go.
const (
	ReasonAge   = "age"
	ReasonSpace = "space"
)

// New makes a Keeper; Run sets it to work.
func New(o Options) *Keeper {
	return &Keeper{o: o, stat: statfs, changed: make(chan struct{}, 1), needed: map[string]time.Time{}, disks: map[string]usage{}, pressure: map[string]string{},
		removed: map[string]int{ReasonAge: 0, ReasonSpace: 0}, lastUsed: map[string]time.Time{}}
}

// Want says which images are needed, by any of their names. As long as it is not sure that these are all, none goes.
func (k *Keeper) Want(refs []string, sure bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	for name := range fullNames(k.wanted) { // until now: a job may come and go between two looks
		k.needed[name] = now
	}
	if k.wanted, k.sure = refs, sure; sure {
		select {
		case k.changed <- struct{}{}:
		default:
		}
	}
}

// Pressure says which disks have too little space; nil when none has.
func (k *Keeper) Pressure() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []error
	for _, name := range slices.Sorted(maps.Keys(k.pressure)) {
		all = append(all, fmt.Errorf("%s: %s", name, k.pressure[name]))
	}
	return errors.Join(all...)
}

// Usage is how full a disk was when it was looked at last.
type Usage struct {
	Name                string
	Capacity, Available uint64 // bytes
	Pressed             bool
}

// Disks are those that have been looked at.
func (k *Keeper) Disks() []Usage {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []Usage
	for _, name := range slices.Sorted(maps.Keys(k.disks)) {
		u := k.disks[name]
		out = append(out, Usage{Name: name, Capacity: u.capacity, Available: u.available, Pressed: k.pressure[name] != ""})
	}
	return out
}

// Removed counts the images that were removed, by reason.
func (k *Keeper) Removed() map[string]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.removed)
}

// Run looks at disks and images until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	k.recall()
	k.checked = time.Now() // first it has to be known what is wanted
	tick := time.NewTicker(diskPeriod)
	defer tick.Stop()
	for {
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

// check looks at the disks and tells of what has changed. It reports pressure that images may be the cause of.
func (k *Keeper) check() (pressed bool) {
	for _, d := range k.o.Disks {
		now, err := k.stat(d.Path)
		if err != nil {
			k.o.Log.Debug("it is not known how full a disk is", "disk", d.Name, "path", d.Path, "why", err)
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
			k.o.Log.Warn("a disk is nearly full", "disk", d.Name, "path", d.Path, "why", why)
		case why == "" && before != "":
			k.o.Log.Info("a disk has space again", "disk", d.Name, "path", d.Path)
		}
		pressed = pressed || why != "" && d.Images
	}
	return pressed
}

// images removes those whose time has come and, when the disk is too full, as many more as that takes.
func (k *Keeper) images(ctx context.Context, pressed bool) {
	s, sure, err := k.see(ctx)
	if err != nil {
		k.o.Log.Warn("images are not looked at", "why", err)
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
		k.o.Log.Warn("the disk is too full and there is no image that may go", "used", fmt.Sprintf("%d%%", used))
	}
}

// dropFetched makes more space when there is no image left that may go.
func (k *Keeper) dropFetched(ctx context.Context) {
	dropped, err := k.o.Images.DropFetched(ctx)
	if dropped > 0 {
		k.full = false
		k.o.Log.Info("dropped what interrupted pulls have fetched", "pulls", dropped)
	}
	if err != nil {
		k.o.Log.Warn("what interrupted pulls have fetched stays", "why", err)
	}
}

// over reports that so much of the images' disk is taken that images are to go.
func (k *Keeper) over() bool {
	used, known := k.used()
	return known && used >= k.o.Policy.High && k.o.Policy.High < 100
}

// used is how much of the images' disk is taken, in percent.
func (k *Keeper) used() (percent int, known bool) {
	for _, d := range k.o.Disks {
		if d.Images {
			now, err := k.stat(d.Path)
			return now.usedPercent(), err == nil
		}
	}
	return 0, false
}

// see looks at the images and notes down which are used now.
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
		k.o.Log.Debug("when images were used last is not noted down", "why", err) // as on a full disk
	}
	return s, sure, nil
}

// recall reads when images were used last. What is not known is as old as the image.
func (k *Keeper) recall() {
	text, err := os.ReadFile(k.o.Record)
	if err == nil {
		err = json.Unmarshal(text, &k.lastUsed)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.o.Log.Warn("it is not known when images were used last", "why", err)
	}
	if k.lastUsed == nil {
		k.lastUsed = map[string]time.Time{}
	}
}

func (k *Keeper) remove(ctx context.Context, i pod.StoredImage, reason string) {
	if _, err := k.o.Images.RemoveImage(ctx, i.Name, false); err != nil {
		if !errors.Is(err, runtime.ErrNotFound) { // as one that was just removed for its age
			k.o.Log.Warn("an image that nobody uses stays", "image", i.Name, "why", err)
		}
		return
	}
	k.mu.Lock()
	k.removed[reason]++
	k.mu.Unlock()
	k.full = false
	k.o.Log.Info("removed an image that nobody uses", "image", i.Name, "reason", reason)
}

func statfs(path string) (usage, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return usage{}, err
	}
	size := uint64(st.Bsize)
	return usage{capacity: st.Blocks * size, available: st.Bavail * size, files: st.Files, filesFree: st.Ffree}, nil
}
