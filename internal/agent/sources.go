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
	// Manifests are files, directories, or "-" for standard input.
	Manifests []string
	// Default reports that the user did not set Manifests. If there is a URL, they may then be
	// missing, and are read when they appear.
	Default            bool
	FileCheckFrequency time.Duration
	// StrictPermissions refuses files that users other than root and podrun's user can write or
	// replace.
	StrictPermissions bool
	// Lasting is passed to filesource.Options.
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

// cacheOptions say what is saved of a URL's last good response. By default nothing is.
type cacheOptions struct {
	dir string
	// readOnly uses the cache without writing it.
	readOnly bool
}

// sources creates the manifest sources of the options. running are the origins of the pods on the
// machine: a path that one of them came from is never taken for missing on purpose.
func (o Options) sources(cache cacheOptions, running map[pod.Key]manifest.Origin) ([]manifest.Source, error) {
	var all []manifest.Source
	s := o.Sources
	seen := map[string]bool{}
	for _, path := range s.Manifests {
		if path != manifest.Stdin {
			if abs, err := filepath.Abs(path); err == nil { // else reading it returns the error
				path = abs
			}
		}
		if seen[path] {
			continue
		}
		seen[path] = true
		if path == manifest.Stdin {
			all = append(all, filesource.NewStdin(o.Stdin, manifest.LoadOptions{
				NodeName: o.NodeName,
				NoSuffix: s.NoSuffix,
				Policy:   s.Policy,
			}))
			continue
		}
		all = append(all, filesource.New(filesource.Options{
			Path:              path,
			NodeName:          o.NodeName,
			NoSuffix:          s.NoSuffix,
			Policy:            s.Policy,
			CheckFrequency:    s.FileCheckFrequency,
			Log:               o.Log,
			StrictPermissions: s.StrictPermissions,
			Lasting:           s.Lasting,
			Optional:          s.Default && s.URL != "" && !from(running, path),
			Runs:              from(running, path),
			IdentityDir:       cache.dir,
			IdentityReadOnly:  cache.readOnly,
			Unwatched:         o.machine != nil,
		}))
	}
	if s.URL != "" {
		var dial func(ctx context.Context, network, address string) (net.Conn, error)
		if o.machine != nil {
			dial = o.machine.dial
		}
		h, err := httpsource.New(httpsource.Options{
			URL:            s.URL,
			Headers:        s.URLHeaders,
			CAFile:         s.CAFile,
			CertFile:       s.CertFile,
			KeyFile:        s.KeyFile,
			CheckFrequency: s.HTTPCheckFrequency,
			NodeName:       o.NodeName,
			NoSuffix:       s.NoSuffix,
			Policy:         s.Policy,
			CacheDir:       cache.dir,
			CacheReadOnly:  cache.readOnly,
			Dial:           dial,
			Log:            o.Log,
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

// sourceNames returns the names of the sources, for people.
func sourceNames(all []manifest.Source) string {
	var out []string
	for _, s := range all {
		out = append(out, s.Name())
	}
	return strings.Join(out, ", ")
}

// prune removes the cached responses of URLs that are not used any more.
func prune(cache, url string, log *slog.Logger) {
	var used []string
	if url != "" {
		used = append(used, url)
	}
	if err := httpsource.PruneCache(cache, used...); err != nil {
		log.Warn("removing the cached responses of unused URLs failed", "err", err)
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
