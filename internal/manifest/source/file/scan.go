package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/podsecurity"
	"podrun.io/podrun/internal/manifest/reader"
	"podrun.io/podrun/internal/manifest/support"
	"podrun.io/podrun/internal/sys/errtext"
	"podrun.io/podrun/internal/sys/own"
)

// scanner scans a directory of manifests, or one file, repeatedly and retains the last good pods of
// each file. It starts no goroutine of its own and takes the time as an argument. It is not safe
// for concurrent use.
type scanner struct {
	policy     *podsecurity.Policy
	rules      support.Rules
	path, node string
	noSuffix   bool
	files      map[string]*entry
	err        error
	// optional is set while a missing path is no error; it is cleared when path exists for the
	// first time.
	optional bool
	// strict is Options.StrictPermissions: files that other users can write are not read.
	strict bool
	// lasting is Options.Lasting: a foreign owner is worth a warning.
	lasting bool
	// loose has an own.LooseError for each directory and link that other users can change.
	loose []error
	// begun is set once the directory has been scanned.
	begun bool
	// kind is the kind of path at the last successful scan: a directory or a file; "" before the
	// first.
	kind pathKind
	// dir is the directory as of the last successful scan; nil before the first, and if path is a
	// file.
	dir fs.FileInfo
	// before is the saved inode of the directory that manifests were read from; 0: not
	// known.
	before uint64
	// links are the directories that symbolic links among the manifests lead to.
	links []string
	// listed is the result of the last call of dirs.
	listed []string
	// done is closed when the result of the scan is no longer needed, so that loading a manifest is
	// given up.
	done <-chan struct{}
	// limit is how long loading one manifest may take; 0: reader.LoadTime.
	limit time.Duration
}

// entry is the state of one file.
type entry struct {
	print print
	hash  string
	// last is the last good content.
	last   manifest.Loaded
	err    error
	reader reader.Reader
	// loose is the own.LooseError of the file if other users can write it; nil if they cannot.
	loose error
	// first is set if the file existed when the directory was scanned for the first time; good,
	// once it was loaded without error. While first is set and good is not, the pods that the file
	// may contain are unknown; a file that was created later certainly contained none before.
	first, good bool
	// busy is the time at which the file was first found open for writing; inspections counts the
	// checks since.
	busy        time.Time
	inspections int
	// away is the time since which the file is missing; zero while it exists.
	away time.Time
}

// scanResult is the outcome of a scan.
type scanResult struct {
	// changed is set if the snapshot differs from the previous one.
	changed bool
	// busy is set if a file is being written.
	busy bool
	// gone is set if there is no such file.
	gone bool
	// again is the delay until the next scan if no event arrives before; 0: the regular interval
	// applies.
	again time.Duration
}

func newScanner(path, node string) *scanner {
	return &scanner{path: path, node: node, files: map[string]*entry{}}
}

// scan reads the files that changed since the last scan.
func (s *scanner) scan(now time.Time) scanResult {
	paths, err := s.list(now)
	if err != nil {
		changed := !errtext.Same(s.err, err)
		s.err = err
		return scanResult{changed: changed}
	}
	loose := s.looseDirs(paths)
	if s.strict && len(loose) > 0 {
		changed := !errtext.Same(s.err, loose[0])
		s.err = loose[0]
		return scanResult{changed: changed}
	}
	result := scanResult{changed: s.err != nil || !sameErrors(s.loose, loose)}
	s.err, s.loose = nil, loose
	for path := range paths {
		if s.files[path] == nil {
			s.files[path] = &entry{first: !s.begun, reader: reader.Reader{Limit: s.limit}}
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

// urlHint returns what to do about a path that was meant as a URL, which is a path by now; "" for any
// other path.
func urlHint(path string) string {
	for _, scheme := range []string{"http:", "https:"} {
		if strings.Contains(path, "/"+scheme+"/") {
			return "; serve and once read manifests of a URL with --manifest-url"
		}
	}
	return ""
}

// list returns the paths of the files that may be manifests. If it fails, the set is unknown, not
// empty.
func (s *scanner) list(now time.Time) (map[string]fs.DirEntry, error) {
	info, err := os.Stat(s.path)
	if s.optional && isGone(s.path) {
		return nil, nil
	}
	var at *fs.PathError
	if errors.As(err, &at) { // without the name of the system call
		return nil, fmt.Errorf("reading manifests: %s: %w%s", s.path, at.Err, urlHint(s.path))
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
	// A file that is renamed while its directory is read may be listed under neither name. If a
	// known file is missing, the directory is read a second time.
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
		return nil, fmt.Errorf(
			"reading manifests: %s is empty and is not the same directory as before (is it not mounted?); %s", s.path, wayOut)
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

// entries adds the directory entries with the name of a manifest: .yaml, .yml or .json, not hidden,
// and no directory.
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

// PassedOver returns the names in a directory that look like a kubelet's manifests, which may have any name, and are
// none here: those that end with .manifest or have no dot.
func PassedOver(dir string) []string {
	entries, _ := os.ReadDir(dir) // no directory has none
	var names []string
	for _, e := range entries {
		hidden, ext := strings.HasPrefix(e.Name(), "."), filepath.Ext(e.Name())
		if !hidden && !e.IsDir() && (ext == "" || ext == ".manifest") {
			names = append(names, e.Name())
		}
	}
	return names
}

// linkTargets adds the directory of path's symbolic link target, which need not exist, unless that
// is the directory of path itself.
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

// inspect checks one file and loads it if it changed.
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
		return e.fail(notRegular(path, info))
	}
	result := scanResult{}
	before := e.loose
	e.loose = own.Loose(path, info, false)
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
		Origin:   manifest.Origin{Source: manifest.SourceFile, Path: path},
		NodeName: s.node,
		NoSuffix: s.noSuffix,
		Policy:   s.policy,
		Rules:    s.rules,
	})
	if errors.Is(err, reader.ErrTooSlow) {
		late := e.fail(err)
		late.again = reader.LoadTime // the load that was given up may have finished by then
		return late
	}
	e.hash = manifest.Digest(data)
	if e.err = err; err == nil {
		loaded.MarkSeen(e.last, now)
		e.last, e.good = loaded, true
	}
	result.changed = true
	return result
}

// isGone reports whether nothing exists at path. A dangling symbolic link exists.
func isGone(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// fail records an error that prevents reading the file, as opposed to an error in its content.
func (e *entry) fail(err error) scanResult {
	changed := !errtext.Same(e.err, err)
	e.err, e.print = err, print{}
	e.busy, e.inspections = time.Time{}, 0
	return scanResult{changed: changed}
}

// wait retains the state of a file that is being written, and reports a problem once that lasts
// longer than patience.
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

// snapshot returns the result of the last scan.
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
		snap.Warnings = append(snap.Warnings, manifest.Problem{
			Origin: manifest.Origin{Source: manifest.SourceFile, Path: s.path},
			Err:    err,
		})
	}
	there := s.there()
	for _, path := range paths {
		e := s.files[path]
		offers := e.offers(there)
		snap.Pods = append(snap.Pods, offers.Pods...)
		snap.GivenUIDs = append(snap.GivenUIDs, offers.GivenUIDs...)
		snap.Objects = append(snap.Objects, offers.Objects...)
		snap.Workloads = append(snap.Workloads, offers.Workloads...)
		origin := manifest.Origin{Source: manifest.SourceFile, Path: path}
		snap.Warnings = append(snap.Warnings, offers.FieldWarnings(origin)...)
		if s.warns(e.loose) {
			snap.Warnings = append(snap.Warnings, manifest.Problem{Origin: origin, Err: e.loose})
		}
		err := e.err
		if err == nil && e.first && !e.busy.IsZero() && e.print.at.IsZero() {
			// The content of the file is not known yet. Pods that were read from it before podrun
			// started must not be removed as unwanted, so a problem is reported.
			err = fmt.Errorf("%s is open for writing; it is read when it is closed", path)
		}
		snap.Problems = append(snap.Problems, manifest.Problems(origin, e.first && !e.good, err)...)
	}
	return snap
}

// dirs returns the directories to watch: the directory of the manifests; the directories that links
// among them lead to; and, if the path is missing, a file or a symbolic link, its nearest existing
// parent, in which it is created or replaced.
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

// moved reports whether the directories to watch changed since the last call of dirs.
func (s *scanner) moved() bool {
	before := s.listed
	return !slices.Equal(before, s.dirs())
}
