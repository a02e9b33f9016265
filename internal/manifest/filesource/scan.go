package filesource

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/validate"
)

// scanner reads a directory's manifests, or one file, again and again, and remembers the last good
// pods of each. It owns no goroutine and no clock.
type scanner struct {
	policy     *validate.Policy
	path, node string
	noSuffix   bool
	files      map[string]*entry
	err        error
	// optional: there may be nothing at path until there was something.
	optional bool
	// strict: what others can write is not read.
	strict bool
	// lasting: who owns what is read is warned of.
	lasting bool
	// loose are the directories and links that others can change.
	loose []error
	// begun: the directory was read once.
	begun bool
	// kind is what path was when it was last read with success: a directory or a file; "" before.
	kind pathKind
	// dir is the directory as it was when it was last read with success; nil before.
	dir fs.FileInfo
	// before is the inode of the directory that what runs came from; 0: not known.
	before uint64
	// links are the directories that symbolic links among the manifests lead into.
	links []string
	// listed are the places as places returned them last.
	listed []string
	// done is closed when nobody waits for a scan any more.
	done <-chan struct{}
}

// entry is what is known of one file.
type entry struct {
	print print
	hash  string
	// pods are the last good ones.
	pods    []*v1.Pod
	objects []manifest.Object
	err     error
	reader  manifest.Reader
	// loose: others can write it; nil if they cannot.
	loose error
	// first: it was there when the directory was first read; good: it could be used since. A file that
	// came later was known to want nothing before.
	first, good bool
	// busy is since when the file was found open for writing; looks counts how often.
	busy        time.Time
	inspections int
	// away is since when the file is not there; zero while it is.
	away time.Time
}

// scanResult is the outcome of a scan.
type scanResult struct {
	// changed: the snapshot says something new.
	changed bool
	// busy: a file is being written.
	busy bool
	// gone: a file is not there.
	gone bool
	// again is when to look again though nothing rings; 0: no need.
	again time.Duration
}

func newScanner(path, node string) *scanner {
	return &scanner{path: path, node: node, files: map[string]*entry{}}
}

// scan reads what changed since the last time.
func (s *scanner) scan(now time.Time) scanResult {
	paths, err := s.list(now)
	if err != nil {
		changed := s.err == nil || s.err.Error() != err.Error()
		s.err = err
		return scanResult{changed: changed}
	}
	loose := s.looseDirs(paths)
	if s.strict && len(loose) > 0 {
		changed := s.err == nil || s.err.Error() != loose[0].Error()
		s.err = loose[0]
		return scanResult{changed: changed}
	}
	result := scanResult{changed: s.err != nil || !sameErrors(s.loose, loose)}
	s.err, s.loose = nil, loose
	for path := range paths {
		if s.files[path] == nil {
			s.files[path] = &entry{first: !s.begun}
		}
	}
	for path, e := range s.files {
		one := scanResult{gone: true}
		if _, there := paths[path]; there {
			one = s.inspect(path, e, now)
		}
		if one = e.stay(one, now); one.gone {
			delete(s.files, path)
		}
		result.changed = result.changed || one.changed
		result.busy = result.busy || one.busy
		if one.again > 0 && (result.again == 0 || one.again < result.again) {
			result.again = one.again
		}
	}
	s.begun = true
	return result
}

// list returns the paths that may be manifests. A failure never means that there are none.
func (s *scanner) list(now time.Time) (map[string]fs.DirEntry, error) {
	info, err := os.Stat(s.path)
	if s.optional && isGone(s.path) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading manifests: %w", err)
	}
	s.optional = false
	if err := s.sameKind(info, now); err != nil {
		return nil, fmt.Errorf("reading manifests: %w", err)
	}
	if !info.IsDir() {
		s.kind, s.dir = kindFile, nil
		s.links = linkTargets(nil, s.path)
		return map[string]fs.DirEntry{s.path: nil}, nil
	}
	paths := map[string]fs.DirEntry{}
	if err := s.entries(paths); err != nil {
		return nil, fmt.Errorf("reading manifests: %w", err)
	}
	// A file that is renamed while its directory is read may be seen under neither name.
	for path := range s.files {
		if _, there := paths[path]; there {
			continue
		}
		if err := s.entries(paths); err != nil {
			return nil, fmt.Errorf("reading manifests: %w", err)
		}
		break
	}
	if len(paths) == 0 && s.another(info) {
		return nil, fmt.Errorf("reading manifests: %s is empty and another directory than before, as when it is not mounted", s.path)
	}
	s.kind, s.dir, s.links = kindDir, info, nil
	for path, e := range paths {
		if e.Type()&fs.ModeSymlink != 0 {
			s.links = linkTargets(s.links, path)
		}
	}
	slices.Sort(s.links)
	return paths, nil
}

// entries adds the paths of what has a manifest's name and is no directory.
func (s *scanner) entries(to map[string]fs.DirEntry) error {
	entries, err := os.ReadDir(s.path)
	for _, e := range entries {
		hidden := strings.HasPrefix(e.Name(), ".")
		if !hidden && !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) {
			to[filepath.Join(s.path, e.Name())] = e
		}
	}
	return err
}

// linkTargets adds the directory of what path leads to, or would, if it is not path's own.
func linkTargets(to []string, path string) []string {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		if real, err = os.Readlink(path); err != nil {
			return to
		}
		if !filepath.IsAbs(real) {
			real = filepath.Join(filepath.Dir(path), real)
		}
	}
	dir := filepath.Dir(real)
	if dir == filepath.Dir(path) || slices.Contains(to, dir) {
		return to
	}
	return append(to, dir)
}

// inspect reads one file if it changed.
func (s *scanner) inspect(path string, e *entry, now time.Time) scanResult {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && isGone(path):
		return scanResult{gone: true}
	case err != nil:
		return e.fail(fmt.Errorf("reading %s: %w", path, errors.Unwrap(err)))
	case info.IsDir(): // behind a symbolic link
		return scanResult{gone: true}
	case !info.Mode().IsRegular():
		return e.fail(fmt.Errorf("reading %s: is not a regular file", path))
	}
	result := scanResult{}
	before := e.loose
	e.loose = loose(path, info, false)
	if s.strict && e.loose != nil {
		return e.fail(e.loose)
	}
	result.changed = (before == nil) != (e.loose == nil)
	if e.busy.IsZero() && e.print.same(info) && !e.print.fresh() {
		return result
	}
	data, print, err := readFile(path, now)
	switch {
	case errors.Is(err, errBusy):
		waiting := e.wait(path, now)
		waiting.changed = waiting.changed || result.changed
		return waiting
	case err != nil:
		return e.fail(err)
	}
	if print.fresh() {
		result.again = freshness
	}
	same := manifest.Digest(data) == e.hash && !e.print.at.IsZero()
	e.busy, e.inspections, e.print = time.Time{}, 0, print
	if same {
		return result
	}
	loaded, err := e.reader.Load(s.done, data, manifest.LoadOptions{
		Origin: manifest.Origin{Source: manifest.SourceFile, Path: path}, NodeName: s.node, NoSuffix: s.noSuffix, Policy: s.policy,
	})
	if errors.Is(err, manifest.ErrTooSlow) {
		late := e.fail(err)
		late.again = manifest.LoadTime // it may be there by then
		return late
	}
	e.hash = manifest.Digest(data)
	if e.err = err; err == nil {
		manifest.MarkSeen(loaded.Pods, e.pods, now)
		e.pods, e.objects, e.good = loaded.Pods, loaded.Objects, true
	}
	result.changed = true
	return result
}

// isGone reports that there is not even a symbolic link that leads nowhere.
func isGone(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// fail notes an error other than of the content.
func (e *entry) fail(err error) scanResult {
	changed := e.err == nil || e.err.Error() != err.Error()
	e.err, e.print = err, print{}
	e.busy, e.inspections = time.Time{}, 0
	return scanResult{changed: changed}
}

// wait keeps what is known of a file that is being written, and says so when it takes long.
func (e *entry) wait(path string, now time.Time) scanResult {
	if e.busy.IsZero() {
		e.busy = now
	}
	again := min(20*time.Millisecond<<min(e.inspections, 5), 500*time.Millisecond)
	e.inspections++
	if now.Sub(e.busy) < patience {
		return scanResult{busy: true, again: again}
	}
	since, looks := e.busy, e.inspections
	result := e.fail(fmt.Errorf("%s is open for writing; it is read when it is closed", path))
	e.busy, e.inspections = since, looks
	result.again = again
	return result
}

// snapshot says what the last scan found.
func (s *scanner) snapshot() manifest.Snapshot {
	snap := manifest.Snapshot{Source: s.path, Err: s.err}
	if s.err != nil {
		return snap
	}
	paths := make([]string, 0, len(s.files))
	for path := range s.files {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	for _, err := range s.loose {
		if !s.warns(err) {
			continue
		}
		snap.Warnings = append(snap.Warnings, manifest.Problem{Origin: manifest.Origin{Source: manifest.SourceFile, Path: s.path}, Err: err})
	}
	there := s.there()
	for _, path := range paths {
		e := s.files[path]
		pods, objects := e.offers(there)
		snap.Pods = append(snap.Pods, pods...)
		snap.Objects = append(snap.Objects, objects...)
		if s.warns(e.loose) {
			snap.Warnings = append(snap.Warnings, manifest.Problem{Origin: manifest.Origin{Source: manifest.SourceFile, Path: path}, Err: e.loose})
		}
		err := e.err
		if err == nil && e.first && !e.busy.IsZero() && e.print.at.IsZero() {
			// What ran from here before podrun started must not be taken for unwanted.
			err = fmt.Errorf("%s is open for writing; it is read when it is closed", path)
		}
		snap.Problems = append(snap.Problems, manifest.Problems(manifest.Origin{Source: manifest.SourceFile, Path: path}, e.first && !e.good, err)...)
	}
	return snap
}

// dirs are the directories to watch: where the manifests are, where links among them lead, and, for a
// path that is not there or is a link itself, where it would come or change.
func (s *scanner) dirs() []string {
	var places []string
	info, err := os.Stat(s.path)
	if err == nil && info.IsDir() {
		places = append(places, s.path)
	}
	link, lerr := os.Lstat(s.path)
	if err != nil || !info.IsDir() || lerr != nil || link.Mode()&fs.ModeSymlink != 0 {
		parent := filepath.Dir(s.path)
		for parent != filepath.Dir(parent) {
			if info, err := os.Stat(parent); err == nil && info.IsDir() {
				break
			}
			parent = filepath.Dir(parent)
		}
		places = append(places, parent)
	}
	for _, dir := range s.links {
		if !slices.Contains(places, dir) {
			places = append(places, dir)
		}
	}
	s.listed = places
	return places
}

// moved reports that the places are not those that places returned last.
func (s *scanner) moved() bool {
	before := s.listed
	return !slices.Equal(before, s.dirs())
}
