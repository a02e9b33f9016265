package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
)

// sources makes the options' sources of manifests.
func sources(o Options) ([]manifest.Source, error) {
	var all []manifest.Source
	seen := map[string]bool{}
	for _, path := range o.Manifests {
		if seen[path] {
			continue
		}
		seen[path] = true
		if path == "-" {
			all = append(all, manifest.NewStdin(o.Stdin, o.NodeName))
			continue
		}
		all = append(all, manifest.NewFile(manifest.FileOptions{Path: path, NodeName: o.NodeName, CheckFrequency: o.FileCheckFrequency, Log: o.Log}))
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: no manifests given", ErrUsage)
	}
	return all, nil
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
