// Package filesource is the source of the manifests in a directory or a file, and of those on standard input: it
// reads them whole whenever something rings, and holds on to what it last read with success of each. What they
// say is for package manifest to read.
package filesource

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/validate"
	"podrun.io/podrun/internal/sys/watch"
)

const (
	// DefaultCheckFrequency is how often files are looked at though nothing rang.
	DefaultCheckFrequency = 20 * time.Second

	// settle gathers rings that come together; every manifest waits for it.
	settle = time.Millisecond
	// pollPeriod is how often files are looked at where nothing rings.
	pollPeriod = time.Second
	// patience is how long a file may be open for writing without a word.
	patience = 2 * time.Second
)

// Options describe a file source.
type Options struct {
	// Path is a directory or a file; it need not exist yet.
	Path string
	// NodeName and NoSuffix are those of manifest.LoadOptions.
	NodeName string
	NoSuffix bool
	// Policy refuses pods that ask for more; nil: none.
	Policy *validate.Policy
	// Optional: as long as nothing was ever at Path, nothing is wanted from there, which is no error.
	Optional bool
	// StrictPermissions refuses what others than root and podrun's user can write or replace, instead of warning.
	StrictPermissions bool
	// Lasting: manifests are taken from Path from now on, whoever changes them, so that it is warned of who owns them.
	Lasting bool
	// Runs: a pod that is there came from Path, so that an empty directory which is another one than before is
	// an error.
	Runs bool
	// IdentityDir is where it is kept which directory Path was; empty: nowhere.
	IdentityDir string
	// IdentityReadOnly: what is there is used, but not written.
	IdentityReadOnly bool
	// CheckFrequency is DefaultCheckFrequency if it is 0.
	CheckFrequency time.Duration
	// Unwatched: the kernel is not asked to tell of changes; files are looked at every CheckFrequency.
	Unwatched bool
	Log       *slog.Logger
}

// Source is of a directory's manifests, or of one file's.
type Source struct {
	path    string
	every   time.Duration
	log     *slog.Logger
	scanner *scanner
	dirID   dirID
	// runs: what place has kept is to be compared with what is there.
	runs bool
	// unwatched is that of Options.
	unwatched bool
}

// New returns a source that reads nothing before Run.
func New(o Options) *Source {
	if o.CheckFrequency == 0 {
		o.CheckFrequency = DefaultCheckFrequency
	}
	// Without a working directory the path stays as it is, and reading it says so.
	path := filepath.Clean(o.Path)
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	s := newScanner(path, o.NodeName)
	s.policy, s.noSuffix = o.Policy, o.NoSuffix
	s.optional, s.strict, s.lasting = o.Optional, o.StrictPermissions, o.Lasting
	return &Source{path: path, every: o.CheckFrequency, log: o.Log, scanner: s, dirID: newDirID(o, path), runs: o.Runs, unwatched: o.Unwatched}
}

// recall tells the scanner which directory what runs came from.
func (f *Source) recall() {
	if err := f.dirID.read(); err != nil {
		f.log.Warn("an empty directory of manifests will be taken for one that was emptied", "manifests", f.path, "why", err)
	}
	if f.runs {
		f.scanner.before = f.dirID.kept
	}
}

// remember keeps which directory the manifests are in, before anybody hears of them.
func (f *Source) remember() {
	used := f.scanner.used()
	if used == 0 {
		return
	}
	if err := f.dirID.keep(used); err != nil {
		f.log.Warn("an empty directory in its place will be taken for one that was emptied", "manifests", f.path, "why", err)
	}
}

// Name is the absolute path.
func (f *Source) Name() string { return f.path }

// Run reads all whenever something rings, and now and then. It sends a Snapshot when that says
// something new.
func (f *Source) Run(ctx context.Context, out chan<- manifest.Snapshot) error {
	watcher := watch.New(f.log)
	if f.unwatched {
		watcher = watch.Silent(f.log)
	}
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	running.Go(func() { _ = watcher.Run(ctx) }) // it returns nil only
	watched := watches{watcher: watcher}
	f.recall()
	f.scanner.done = ctx.Done()

	began, changed := time.Now(), true
	first := true
	for {
		start := time.Now()
		polled := watched.follow(f.scanner.dirs())
		found := f.scanner.scan(start)
		changed = changed || found.changed
		if f.scanner.moved() {
			continue // what is to be watched from now on may have changed before
		}
		f.remember()
		// A directory that never rests must not make podrun never rest.
		rest := max(settle, 5*time.Since(start))
		hold := found.busy && first && start.Sub(began) < patience
		if changed && !hold {
			select {
			case out <- f.scanner.snapshot():
				changed, first = false, false
			case <-ctx.Done():
				return nil
			}
		}
		next := f.every
		if polled {
			next = min(next, pollPeriod)
		}
		if found.again > 0 {
			next = min(next, found.again)
		}
		if !f.wait(ctx, watcher.Events(), next, rest) {
			return nil
		}
	}
}

// wait returns after next, or rest after something rang; false when ctx ended.
func (f *Source) wait(ctx context.Context, rings <-chan string, next, rest time.Duration) bool {
	timer := time.NewTimer(next)
	defer timer.Stop()
	var rung <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case <-rung:
			return true
		case <-rings:
			if rung == nil {
				rung = time.After(rest)
			}
		}
	}
}

// Read reads a path once, as a file source does first, waiting a little for files that are being
// written.
func Read(ctx context.Context, o Options) manifest.Snapshot {
	f := New(o)
	f.recall()
	f.scanner.done = ctx.Done()
	began := time.Now()
	for {
		now := time.Now()
		found := f.scanner.scan(now)
		if !found.busy || now.Sub(began) >= patience || !f.wait(ctx, nil, found.again, 0) {
			return f.scanner.snapshot()
		}
	}
}

// watches keeps a watcher to a set of paths.
type watches struct {
	watcher *watch.Watcher
	paths   []string
}

// follow watches these paths and no others; it reports that some cannot be watched.
func (w *watches) follow(paths []string) (polled bool) {
	for _, path := range w.paths {
		if !slices.Contains(paths, path) {
			w.watcher.Remove(path)
		}
	}
	w.paths = paths
	for _, path := range paths {
		if err := w.watcher.Add(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			polled = true
		}
	}
	return polled
}
