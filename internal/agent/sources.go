package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/filesource"
	"podrun.io/podrun/internal/manifest/httpsource"
	"podrun.io/podrun/internal/manifest/validate"
	"podrun.io/podrun/internal/pod"
)

// SourceOptions say where manifests are read.
type SourceOptions struct {
	// Manifests are files, directories or "-" for standard input.
	Manifests []string
	// Default says that nobody named Manifests. With a URL they are then read only if they are there, or
	// come to be there.
	Default            bool
	FileCheckFrequency time.Duration
	// StrictPermissions refuses files that others than root and podrun's user can write or replace.
	StrictPermissions bool
	// Lasting is filesource.Options'.
	Lasting bool
	// NoSuffix leaves the pods' names as their manifests give them.
	NoSuffix bool
	// Policy refuses pods that ask for more; nil: none.
	Policy *validate.Policy
	// URL serves manifests; empty: none does. What is said of the fields below in httpsource.Options
	// holds here.
	URL                       string
	URLHeaders                []string
	CAFile, CertFile, KeyFile string
	HTTPCheckFrequency        time.Duration
}

// cacheOptions say what is made of a URL's last good answer; by default nothing.
type cacheOptions struct {
	dir string
	// readOnly: it is used but not written.
	readOnly bool
}

// sources makes the options' sources of manifests. running are the origins of the pods that are
// there: a place that one of them came from is never thought to be missing on purpose.
func (o Options) sources(cache cacheOptions, running map[pod.Key]manifest.Origin) ([]manifest.Source, error) {
	var all []manifest.Source
	s := o.Sources
	seen := map[string]bool{}
	for _, path := range s.Manifests {
		if path != manifest.Stdin {
			if abs, err := filepath.Abs(path); err == nil { // else reading it says so
				path = abs
			}
		}
		if seen[path] {
			continue
		}
		seen[path] = true
		if path == manifest.Stdin {
			all = append(all, filesource.NewStdin(o.Stdin, manifest.LoadOptions{NodeName: o.NodeName, NoSuffix: s.NoSuffix, Policy: s.Policy}))
			continue
		}
		all = append(all, filesource.New(filesource.Options{
			Path: path, NodeName: o.NodeName, NoSuffix: s.NoSuffix, Policy: s.Policy, CheckFrequency: s.FileCheckFrequency, Log: o.Log,
			StrictPermissions: s.StrictPermissions, Lasting: s.Lasting, Optional: s.Default && s.URL != "" && !from(running, path),
			Runs: from(running, path), IdentityDir: cache.dir, IdentityReadOnly: cache.readOnly, Unwatched: o.machine != nil,
		}))
	}
	if s.URL != "" {
		var dial func(ctx context.Context, network, address string) (net.Conn, error)
		if o.machine != nil {
			dial = o.machine.dial
		}
		h, err := httpsource.New(httpsource.Options{
			URL: s.URL, Headers: s.URLHeaders, CAFile: s.CAFile, CertFile: s.CertFile, KeyFile: s.KeyFile,
			CheckFrequency: s.HTTPCheckFrequency, NodeName: o.NodeName, NoSuffix: s.NoSuffix, Policy: s.Policy, CacheDir: cache.dir, CacheReadOnly: cache.readOnly, Dial: dial, Log: o.Log,
		})
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUsage, err)
		}
		all = append(all, h)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: no manifests given", ErrUsage)
	}
	return all, nil
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

// sourceNames are those of sources, for people.
func sourceNames(all []manifest.Source) string {
	var out []string
	for _, s := range all {
		out = append(out, s.Name())
	}
	return strings.Join(out, ", ")
}

// prune forgets what URLs served that are asked no more.
func prune(cache, url string, log *slog.Logger) {
	var used []string
	if url != "" {
		used = append(used, url)
	}
	if err := httpsource.PruneCache(cache, used...); err != nil {
		log.Warn("what other URLs served is still on disk", "why", err)
	}
}

// read runs sources and the mux over them until ctx ends, and sends every desired set.
func read(ctx context.Context, all []manifest.Source, running map[pod.Key]manifest.Origin, out chan<- manifest.Desired, failed func(string, error)) {
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
	if err := manifest.NewMux(names, running).Run(ctx, snapshots, out); err != nil && !errors.Is(err, context.Canceled) {
		failed("mux", err)
	}
	reading.Wait()
}
