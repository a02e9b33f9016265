package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/source"
	"podrun.io/podrun/internal/manifest/source/exec"
	"podrun.io/podrun/internal/manifest/source/file"
	httpsource "podrun.io/podrun/internal/manifest/source/http"
	"podrun.io/podrun/internal/manifest/validate"
	"podrun.io/podrun/internal/pod"
)

// SourceOptions say where manifests are read.
type SourceOptions struct {
	// Manifests are files, directories, "-" for standard input, or "exec:COMMAND".
	Manifests []string
	// Default reports that the user did not set Manifests. If there is a URL, they may then be
	// missing, and are read when they appear.
	Default            bool
	FileCheckFrequency time.Duration
	// StrictPermissions refuses files that users other than root and podrun's user can write or
	// replace.
	StrictPermissions bool
	// Lasting is passed to file.Options.
	Lasting bool
	// NoSuffix keeps the pod names of the manifests, without the node name.
	NoSuffix bool
	// Policy refuses pods that request more than it allows. nil: no limits.
	Policy *validate.Policy
	// URL serves manifests. Empty: none. The fields below are described at httpsource.Options.
	URL                       string
	URLHeaders                []string
	CAFile, CertFile, KeyFile string
	HTTPCheckFrequency        time.Duration
}

// cacheOptions say where the last good text of a URL or a command is saved. By default it is not.
type cacheOptions struct {
	dir string
	// readOnly uses the cache without writing it.
	readOnly bool
}

// sourceKinds are the kinds of source that Manifests can name, by what the location begins with. The first that fits is
// taken. A new kind is a new line here.
var sourceKinds = []struct {
	prefix string
	open   func(p sourceParams, location string) (manifest.Source, error)
}{
	{manifest.Stdin, openStdin},
	{exec.Prefix, openExec},
	{"", openFile},
}

// sourceParams are what sources are opened with.
type sourceParams struct {
	Options
	cache cacheOptions
	// running are the origins of the pods that run.
	running map[pod.Key]manifest.Origin
}

// sources opens the sources of manifests that the options name. running are the origins of the pods that run: a path
// that one of them came from is never taken for one that is missing on purpose.
func (o Options) sources(cache cacheOptions, running map[pod.Key]manifest.Origin) ([]manifest.Source, error) {
	p := sourceParams{Options: o, cache: cache, running: running}
	var all []manifest.Source
	seen := map[string]bool{}
	add := func(s manifest.Source, err error) error {
		if err != nil {
			return fmt.Errorf("%w: %w", ErrUsage, err)
		}
		if !seen[s.Name()] {
			all = append(all, s)
		}
		seen[s.Name()] = true
		return nil
	}
	for _, location := range o.Sources.Manifests {
		if err := add(openSource(p, location)); err != nil {
			return nil, err
		}
	}
	if o.Sources.URL != "" {
		if err := add(openHTTP(p)); err != nil {
			return nil, err
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: no manifests given", ErrUsage)
	}
	return all, nil
}

func openSource(p sourceParams, location string) (manifest.Source, error) {
	for _, k := range sourceKinds {
		if location == k.prefix || k.prefix != manifest.Stdin && strings.HasPrefix(location, k.prefix) {
			return k.open(p, location)
		}
	}
	return nil, fmt.Errorf("--manifests %s: no such kind of source", location)
}

func openStdin(p sourceParams, _ string) (manifest.Source, error) {
	load := manifest.LoadOptions{NodeName: p.NodeName, NoSuffix: p.Sources.NoSuffix, Policy: p.Sources.Policy}
	return file.NewStdin(p.Stdin, load), nil
}

func openFile(p sourceParams, path string) (manifest.Source, error) {
	if abs, err := filepath.Abs(path); err == nil { // else reading it says so
		path = abs
	}
	s := p.Sources
	runs := from(p.running, path)
	return file.New(file.Options{
		Path:              path,
		NodeName:          p.NodeName,
		NoSuffix:          s.NoSuffix,
		Policy:            s.Policy,
		CheckFrequency:    s.FileCheckFrequency,
		StrictPermissions: s.StrictPermissions,
		Lasting:           s.Lasting,
		Optional:          s.Default && s.URL != "" && !runs,
		Runs:              runs,
		IdentityDir:       p.cache.dir,
		IdentityReadOnly:  p.cache.readOnly,
		Unwatched:         p.machine != nil,
		Log:               p.Log,
	}), nil
}

func openExec(p sourceParams, location string) (manifest.Source, error) {
	s, err := exec.New(exec.Options{
		Command:        strings.TrimPrefix(location, exec.Prefix),
		CheckFrequency: p.Sources.FileCheckFrequency,
		NodeName:       p.NodeName,
		NoSuffix:       p.Sources.NoSuffix,
		Policy:         p.Sources.Policy,
		CacheDir:       p.cache.dir,
		CacheReadOnly:  p.cache.readOnly,
		Log:            p.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("--manifests %s: %w", location, err)
	}
	return s, nil
}

func openHTTP(p sourceParams) (manifest.Source, error) {
	s := p.Sources
	o := httpsource.Options{
		URL:            s.URL,
		Headers:        s.URLHeaders,
		CAFile:         s.CAFile,
		CertFile:       s.CertFile,
		KeyFile:        s.KeyFile,
		CheckFrequency: s.HTTPCheckFrequency,
		NodeName:       p.NodeName,
		NoSuffix:       s.NoSuffix,
		Policy:         s.Policy,
		CacheDir:       p.cache.dir,
		CacheReadOnly:  p.cache.readOnly,
		Log:            p.Log,
	}
	if p.machine != nil {
		o.Dial = p.machine.dial
	}
	return httpsource.New(o)
}

// from reports that a pod came from path or from a file in it.
func from(running map[pod.Key]manifest.Origin, path string) bool {
	for _, origin := range running {
		if origin.Path == path || filepath.Dir(origin.Path) == path {
			return true
		}
	}
	return false
}

// sourceNames returns the names of the sources, for people.
func sourceNames(all []manifest.Source) string {
	var out []string
	for _, s := range all {
		out = append(out, s.Name())
	}
	return strings.Join(out, ", ")
}

// prune removes what is cached of sources that are not used any more.
func prune(cache string, o SourceOptions, log *slog.Logger) {
	var used []string
	if o.URL != "" {
		used = append(used, o.URL)
	}
	for _, location := range o.Manifests {
		if command, ok := strings.CutPrefix(location, exec.Prefix); ok {
			used = append(used, command)
		}
	}
	if err := source.PruneCache(cache, used...); err != nil {
		log.Warn("cached manifests of former sources stay on disk", "err", err)
	}
}

// read runs the sources and their mux until ctx ends, and sends every desired set.
func read(
	ctx context.Context, all []manifest.Source, running map[pod.Key]manifest.Origin,
	out chan<- manifest.Desired, failed func(string, error),
) {
	snapshots := make(chan manifest.Snapshot)
	var names []string
	var reading sync.WaitGroup
	for _, s := range all {
		names = append(names, s.Name())
		reading.Go(func() {
			if err := s.Run(ctx, snapshots); err != nil && !errors.Is(err, context.Canceled) {
				failed(s.Name(), err)
			}
		})
	}
	if err := manifest.NewMux(names, running).Run(ctx, snapshots, out); err != nil &&
		!errors.Is(err, context.Canceled) {
		failed("mux", err)
	}
	reading.Wait()
}
