// Package file implements manifest.Source for a directory of manifests, a single manifest file, and
// standard input.
//
// It owns when files are read and which of them can be used: inotify and polling, files that are
// being written, files that are missing for a moment, a path that was replaced or is not mounted,
// and files that other users can write. An event only causes a scan: the files are then read whole,
// and the last good pods of each file are retained while the file is invalid. Decoding and
// validation are done by package manifest.
//
// Begin reading at Source and its Run method; Text is the source for standard input.
package file

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
	"podrun.io/podrun/internal/manifest/podsecurity"
	"podrun.io/podrun/internal/manifest/reader"
	"podrun.io/podrun/internal/manifest/support"
	"podrun.io/podrun/internal/sys/watch"
)

const (
	// DefaultCheckFrequency is the interval between scans when no event arrives.
	DefaultCheckFrequency = 20 * time.Second

	// settle is the minimum delay between an event and the scan, so that events which arrive
	// together cause one scan. It delays every change of a manifest.
	settle = time.Millisecond
	// pollPeriod is the scan interval while a directory cannot be watched.
	pollPeriod = time.Second
	// patience is how long a file may be open for writing before that is reported as a problem.
	patience = 2 * time.Second
)

// Options configures a file source.
type Options struct {
	// Path is a directory or a file; it need not exist yet.
	Path string
	// NodeName and NoSuffix have the meaning that they have in manifest.LoadOptions.
	NodeName string
	NoSuffix bool
	// Policy refuses pods that need more privileges than it allows; nil allows all pods.
	Policy *podsecurity.Policy
	// Rules are those of manifest.LoadOptions.
	Rules support.Rules
	// Optional makes a missing Path an empty source instead of an error, until Path exists for the
	// first time.
	Optional bool
	// StrictPermissions refuses manifests that users other than root and podrun's own user can
	// write or replace, instead of warning about them.
	StrictPermissions bool
	// Lasting is set if Path is followed and each later change of it is run, as by serve. Manifests
	// that belong to another user are then worth a warning; if Path is read for one run only, they
	// are not.
	Lasting bool
	// Runs is set if a pod on the machine came from Path, or something is recorded that may have. An empty directory
	// at Path is then an error, unless it is the directory that was read before.
	Runs bool
	// IdentityDir is the directory where the identity of Path's directory is saved; empty: it is
	// not saved.
	IdentityDir string
	// IdentityReadOnly uses the saved identity in IdentityDir and never writes it.
	IdentityReadOnly bool
	// CheckFrequency is the interval between scans when no event arrives; 0 means
	// DefaultCheckFrequency.
	CheckFrequency time.Duration
	// Unwatched turns inotify off: files are scanned every CheckFrequency only.
	Unwatched bool
	// Log receives the log messages of the source and of its watcher.
	Log *slog.Logger
}

// Source reads the manifests of a directory, or of one file. It implements manifest.Source.
type Source struct {
	path    string
	every   time.Duration
	log     *slog.Logger
	scanner *scanner
	dirID   dirID
	// runs is Options.Runs: the saved directory identity is compared with the directory that is
	// there.
	runs bool
	// unwatched is Options.Unwatched.
	unwatched bool
}

// New returns a Source. It reads no manifest before Run.
func New(o Options) *Source {
	if o.CheckFrequency == 0 {
		o.CheckFrequency = DefaultCheckFrequency
	}
	// filepath.Abs fails if there is no working directory. The path then stays relative, and
	// reading it reports the error.
	path := filepath.Clean(o.Path)
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	s := newScanner(path, o.NodeName)
	s.policy, s.rules, s.noSuffix = o.Policy, o.Rules, o.NoSuffix
	s.optional, s.strict, s.lasting = o.Optional, o.StrictPermissions, o.Lasting
	if !o.Lasting {
		s.limit = reader.LoadTimeAlone // what is late is not read once more
	}
	return &Source{
		path:      path,
		every:     o.CheckFrequency,
		log:       o.Log,
		scanner:   s,
		dirID:     newDirID(o, path),
		runs:      o.Runs,
		unwatched: o.Unwatched,
	}
}

// recall reads the saved directory identity and gives it to the scanner if an empty directory would remove something.
func (f *Source) recall() {
	if err := f.dirID.read(); err != nil {
		f.log.Warn("the saved identity of the manifest directory cannot be used;"+
			" if the directory is empty, its pods are stopped even if it is only not mounted",
			"manifests", f.path, "err", err)
	}
	if f.runs {
		f.scanner.before = f.dirID.kept
	}
}

// remember saves the identity of the manifest directory. Run calls it before it sends the snapshot,
// so that no pod starts from a directory whose identity is not saved.
func (f *Source) remember() {
	used := f.scanner.used()
	if used == 0 && !f.scanner.emptied() {
		return
	}
	if err := f.dirID.keep(used); err != nil {
		f.log.Warn("the identity of the manifest directory cannot be saved;"+
			" if it is empty at the next start, its pods are stopped even if it is only not mounted",
			"manifests", f.path, "err", err)
	}
}

// Name returns the absolute path.
func (f *Source) Name() string { return f.path }

// Run scans the path after every event and every CheckFrequency, and sends a Snapshot when the
// result changed. It returns nil when ctx ends.
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
			continue // the new directories were not watched during the scan, so a change may have been missed
		}
		f.remember()
		// A directory that changes all the time must not keep podrun busy all the time.
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

// wait returns true after the duration next, or the duration rest after the first event; false when
// ctx ends.
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

// Read returns the first Snapshot that a Source with these options would send. It waits up to 2 s
// for files that are being written.
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

// watches is a watcher with the set of paths that it watches.
type watches struct {
	watcher *watch.Watcher
	paths   []string
}

// follow watches these paths and no others. It reports whether an existing path cannot be watched
// and so has to be polled.
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
