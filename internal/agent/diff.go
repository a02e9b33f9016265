package agent

import (
	"context"
	"errors"
	"sync"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
)

// Diff returns what Serve would change on the pods that are on the machine now, and the desired set
// that this is based on. It needs no containerd and changes nothing, whether serve runs or not.
func Diff(ctx context.Context, o Options) ([]manifest.Change, manifest.Desired, error) {
	store := checkpoint.NewStore(o.Dirs, o.Log)
	kept, err := store.List()
	if err = errors.Join(err, errors.Join(store.Errors()...)); err != nil {
		return nil, manifest.Desired{}, err
	}
	there, origins := map[pod.Key]*v1.Pod{}, map[pod.Key]manifest.Origin{}
	for key, revisions := range kept {
		there[key], origins[key] = revisions[0].Pod, manifest.OriginOf(revisions[0].Pod)
	}
	all, err := o.sources(cacheOptions{dir: o.Dirs.Manifests(), readOnly: true}, origins)
	if err != nil {
		return nil, manifest.Desired{}, err
	}
	desired, err := readAll(ctx, all, origins)
	if err != nil {
		return nil, manifest.Desired{}, err
	}
	for key, revisions := range kept {
		if owner := revisions[0].Owner; owner != ownerServe && owner != "" && desired.Pods[key] == nil {
			delete(there, key) // not serve's to terminate
		}
	}
	return manifest.Changes(desired, there), desired, nil
}

// readAll merges the first snapshot of each source.
func readAll(
	ctx context.Context, all []manifest.Source, running map[pod.Key]manifest.Origin,
) (manifest.Desired, error) {
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()
	word := manifest.Word{Running: running}
	out := make(chan manifest.Snapshot)
	ended := make(chan error, len(all))
	for _, s := range all {
		word.Order = append(word.Order, s.Name())
		reading.Go(func() { ended <- s.Run(ctx, out) })
	}
	for spoken := map[string]bool{}; len(spoken) < len(all); {
		select {
		case s := <-out:
			if !spoken[s.Source] {
				word.Record(s)
			}
			spoken[s.Source] = true
		case err := <-ended:
			if err != nil {
				return manifest.Desired{}, err
			}
		case <-ctx.Done():
			return manifest.Desired{}, ctx.Err()
		}
	}
	return manifest.Merge(word), nil
}
