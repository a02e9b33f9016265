// Package sources opens the sources of manifests that options name, and reads them: continuously
// (Run), until every source has been read (First), for one run (ReadOnce), or for a comparison with the
// pods on the machine (Diff).
//
// The package does not interpret manifests, and runs nothing.
//
// Begin reading at Opener.
package sources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/mux"
	"podrun.io/podrun/internal/manifest/podsecurity"
	"podrun.io/podrun/internal/manifest/source"
	"podrun.io/podrun/internal/manifest/source/exec"
	"podrun.io/podrun/internal/manifest/source/file"
	httpsource "podrun.io/podrun/internal/manifest/source/http"
	"podrun.io/podrun/internal/manifest/support"
	"podrun.io/podrun/internal/pod"
)

// Options say where manifests are read.
type Options struct {
	// Manifests are files, directories, "-" for standard input, or "exec:COMMAND".
	Manifests []string
	// Default reports that the user did not set Manifests. If there is a URL, they may then be
	// missing, and are read when they appear.
	Default            bool
	FileCheckFrequency time.Duration
	// StrictPermissions refuses files that users other than root and podrun's user can write or
	// replace.
	StrictPermissions bool
	// NoSuffix keeps the pod names of the manifests, without the node name.
	NoSuffix bool
	// Policy refuses pods that request more than it allows. nil: no limits.
	Policy *podsecurity.Policy
	// Rollback rolls back the revisions of all manifests that do not say otherwise, while sources are followed.
	Rollback bool
	// Rules say which fields that podrun ignores are accepted.
	Rules support.Rules
	// URL serves manifests. Empty: none. The fields below are described at httpsource.Options.
	URL                       string
	URLHeaders                []string
	CAFile, CertFile, KeyFile string
	HTTPCheckFrequency        time.Duration
}

// Shown returns the locations of the manifests and the URL without what may be a secret: the arguments
// of commands, and parts of the URL.
func (o Options) Shown() (manifests []string, url string) {
	for _, location := range o.Manifests {
		if command, is := strings.CutPrefix(location, exec.Prefix); is {
			program, _, _ := strings.Cut(strings.TrimSpace(command), " ")
			location = exec.Prefix + program
		}
		manifests = append(manifests, location)
	}
	if o.URL != "" {
		url = httpsource.MaskURL(o.URL)
	}
	return manifests, url
}

// ErrUsage marks errors of the options; see Usage.
var ErrUsage = errors.New("usage")

// Usage returns err as an error that is ErrUsage, with the same text.
func Usage(err error) error { return usageError{err} }

type usageError struct{ error }

// Is implements the interface of package errors.
func (usageError) Is(target error) bool { return target == ErrUsage }

// Unwrap implements the interface of package errors.
func (u usageError) Unwrap() error { return u.error }

// Opener opens the sources that its options name.
type Opener struct {
	Options
	// NodeName is the suffix of every pod name, in lower case.
	NodeName string
	// Stdin is read if "-" is one of the manifests.
	Stdin io.Reader
	// CacheDir is where the last good text of a URL or a command is saved. Empty: nowhere.
	// CacheReadOnly uses what is there without writing it.
	CacheDir      string
	CacheReadOnly bool
	// Lasting says that the sources are followed, as serve does; see file.Options.Lasting.
	Lasting bool
	// Unwatched polls files instead of watching them.
	Unwatched bool
	// Dial connects to the URL. nil: over the network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Running are the origins of the pods that run: a path that one of them came from is never taken
	// for one that is missing on purpose, and of two manifests for one pod the running one stays chosen.
	Running map[pod.Key]manifest.Origin
	// Stored are the manifests of the pods that run and that are this process's to replace.
	Stored map[pod.Key]*v1.Pod
	// SharesPorts reports that two pods of a workload may have the same host port. nil: they may not.
	SharesPorts func() bool

	read func(manifest.Snapshot) // nil: nobody
	// Record is what is recorded of the pods of workloads. May be nil.
	Record mux.Record
	Log    *slog.Logger
}

// sourceKinds are the kinds of source that Manifests can name, by what the location begins with. The
// first that fits is used. A new kind is a new line here.
var sourceKinds = []struct {
	prefix string
	open   func(o Opener, location string) (manifest.Source, error)
}{
	{manifest.Stdin, Opener.stdin},
	{exec.Prefix, Opener.exec},
	{"", Opener.file},
}

// Open opens the sources. Its errors are ErrUsage.
func (o Opener) Open() ([]manifest.Source, error) {
	var all []manifest.Source
	seen := map[string]bool{}
	add := func(s manifest.Source, err error) error {
		if err != nil {
			return Usage(err)
		}
		if !seen[s.Name()] {
			all = append(all, s)
		}
		seen[s.Name()] = true
		return nil
	}
	for _, location := range o.Manifests {
		if err := add(o.open(location)); err != nil {
			return nil, err
		}
	}
	if o.URL != "" {
		if err := add(o.http()); err != nil {
			return nil, err
		}
	}
	if len(all) == 0 {
		return nil, Usage(errors.New("no manifests given"))
	}
	return all, nil
}

func (o Opener) open(location string) (manifest.Source, error) {
	for _, k := range sourceKinds {
		if location == k.prefix || k.prefix != manifest.Stdin && strings.HasPrefix(location, k.prefix) {
			return k.open(o, location)
		}
	}
	return nil, fmt.Errorf("--manifests %s: no such kind of source", location)
}

func (o Opener) stdin(string) (manifest.Source, error) {
	load := manifest.LoadOptions{NodeName: o.NodeName, NoSuffix: o.NoSuffix, Policy: o.Policy, Rules: o.Rules}
	return file.NewStdin(o.Stdin, load), nil
}

func (o Opener) file(path string) (manifest.Source, error) {
	if abs, err := filepath.Abs(path); err == nil { // else reading it says so
		path = abs
	}
	runs := o.runsFrom(path)
	return file.New(file.Options{
		Path:              path,
		NodeName:          o.NodeName,
		NoSuffix:          o.NoSuffix,
		Policy:            o.Policy,
		Rules:             o.Rules,
		CheckFrequency:    o.FileCheckFrequency,
		StrictPermissions: o.StrictPermissions,
		Lasting:           o.Lasting,
		Optional:          o.Default && o.URL != "" && !runs,
		Runs:              runs || o.hasHistories(),
		IdentityDir:       o.CacheDir,
		IdentityReadOnly:  o.CacheReadOnly,
		Unwatched:         o.Unwatched,
		Log:               o.Log,
	}), nil
}

func (o Opener) exec(location string) (manifest.Source, error) {
	s, err := exec.New(exec.Options{
		Command:        strings.TrimPrefix(location, exec.Prefix),
		CheckFrequency: o.FileCheckFrequency,
		NodeName:       o.NodeName,
		NoSuffix:       o.NoSuffix,
		Policy:         o.Policy,
		Rules:          o.Rules,
		CacheDir:       o.CacheDir,
		CacheReadOnly:  o.CacheReadOnly,
		Log:            o.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("--manifests %s: %w", location, err)
	}
	return s, nil
}

func (o Opener) http() (manifest.Source, error) {
	return httpsource.New(httpsource.Options{
		URL:            o.URL,
		Headers:        o.URLHeaders,
		CAFile:         o.CAFile,
		CertFile:       o.CertFile,
		KeyFile:        o.KeyFile,
		CheckFrequency: o.HTTPCheckFrequency,
		NodeName:       o.NodeName,
		NoSuffix:       o.NoSuffix,
		Policy:         o.Policy,
		Rules:          o.Rules,
		CacheDir:       o.CacheDir,
		CacheReadOnly:  o.CacheReadOnly,
		Dial:           o.Dial,
		Log:            o.Log,
	})
}

// runsFrom reports that a pod that runs came from path or from a file in it.
func (o Opener) runsFrom(path string) bool {
	for _, origin := range o.Running {
		if origin.Path == path || filepath.Dir(origin.Path) == path {
			return true
		}
	}
	return false
}

// hasHistories reports that Jobs or CronJobs are recorded, which are forgotten when no manifest has them: they begin
// once more if it is there again.
func (o Opener) hasHistories() bool {
	if o.Record == nil {
		return false
	}
	recorded := o.Record.Recorded()
	return len(recorded.Jobs)+len(recorded.CronJobs) > 0
}

// Names returns the names of the sources, for people.
func Names(all []manifest.Source) string {
	var out []string
	for _, s := range all {
		out = append(out, s.Name())
	}
	return strings.Join(out, ", ")
}

// Prune removes what is cached of sources that are not used any more.
func (o Opener) Prune() {
	var used []string
	if o.URL != "" {
		used = append(used, o.URL)
	}
	for _, location := range o.Manifests {
		if command, ok := strings.CutPrefix(location, exec.Prefix); ok {
			used = append(used, command)
		}
	}
	if err := source.PruneCache(o.CacheDir, used...); err != nil {
		o.Log.Warn("cached manifests of former sources stay on disk", "err", err)
	}
}

// Run runs the opened sources and their mux until ctx ends, and sends every desired set. It calls failed
// with the name and the error of a part that has ended before.
func (o Opener) Run(
	ctx context.Context, all []manifest.Source, out chan<- manifest.Desired, failed func(string, error),
) {
	var names []string
	for _, s := range all {
		names = append(names, s.Name())
	}
	m := mux.New(names, o.Running, o.Record)
	m.Rollback = &mux.Rollback{All: o.Rollback, Refusal: o.Policy.Refusal}
	m.Rollout, m.Before = &mux.Rollout{SharesPorts: o.SharesPorts}, o.Stored
	o.run(ctx, all, m, out, failed)
}

// Watched returns o which calls read with each snapshot of a source before it is merged.
func (o Opener) Watched(read func(manifest.Snapshot)) Opener {
	o.read = read
	return o
}

// watched passes on the snapshots that o's read has been called with, until ctx ends.
func (o Opener) watched(
	ctx context.Context, in <-chan manifest.Snapshot, running *sync.WaitGroup,
) <-chan manifest.Snapshot {
	if o.read == nil {
		return in
	}
	out := make(chan manifest.Snapshot)
	running.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case s := <-in:
				o.read(s)
				select {
				case <-ctx.Done():
					return
				case out <- s:
				}
			}
		}
	})
	return out
}

// run is Run with a mux that may be run again.
func (o Opener) run(
	ctx context.Context, all []manifest.Source, m *mux.Mux, out chan<- manifest.Desired, failed func(string, error),
) {
	snapshots := make(chan manifest.Snapshot)
	var reading sync.WaitGroup
	in := o.watched(ctx, snapshots, &reading)
	for _, s := range all {
		reading.Go(func() {
			if err := s.Run(ctx, snapshots); err != nil && !errors.Is(err, context.Canceled) {
				failed(s.Name(), err)
			}
		})
	}
	if err := m.Run(ctx, in, out); err != nil && !errors.Is(err, context.Canceled) {
		failed("mux", err)
	}
	ended := make(chan struct{})
	go func() {
		reading.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(hangTime): // it reads files of a server that does not answer, and changes nothing
	}
}

// hangTime is how long sources may take to end before they count as hanging.
const hangTime = time.Second
