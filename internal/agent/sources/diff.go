package sources

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/agent/record"
	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/changes"
	"podrun.io/podrun/internal/manifest/mux"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/workload"
)

// Outdated returns the names of the volumes of a pod that runs whose files are not what they are with
// the given ConfigMaps and Secrets. volume.Outdated is one.
type Outdated func(dirs layout.Dirs, p *v1.Pod, objects pod.Objects) ([]string, error)

// Served returns the documents of the workloads of the serve of these directories. status.Documents is one.
type Served func(dirs layout.Dirs) (map[workload.ID]json.RawMessage, error)

// Change is what serve would change on one pod.
type Change = changes.Change

// Diff returns what serve would change on the pods that are on the machine now, and the desired set
// that this is based on. The checkpoints of the pods are in dirs. It needs no containerd and changes
// nothing, whether serve runs or not.
func (o Opener) Diff(
	ctx context.Context, dirs layout.Dirs, served Served, outdated Outdated,
) ([]Change, manifest.Desired, error) {
	store := checkpoint.NewStore(dirs, o.Log)
	boot, err := sys.BootID()
	if err != nil {
		return nil, manifest.Desired{}, err
	}
	recorded := record.New(nil).At(boot, nil, nil, o.Log)
	kept, err := recorded.Recall(store)
	if err = errors.Join(err, errors.Join(store.Errors()...)); err != nil {
		return nil, manifest.Desired{}, err
	}
	there := map[pod.Key]*v1.Pod{}
	for key, revisions := range kept {
		there[key] = revisions[0].Pod
	}
	o.Running, o.Record = Origins(kept), recorded
	opened, err := o.Open()
	if err != nil {
		return nil, manifest.Desired{}, err
	}
	desired, err := o.First(ctx, opened)
	if err != nil {
		return nil, manifest.Desired{}, err
	}
	for key, revisions := range kept {
		if by := revisions[0].Owner; by != owner.Serve && by != "" && desired.Pods[key] == nil {
			delete(there, key) // not serve's to terminate
		}
	}
	all := changes.Of(desired, there)
	for i := range all {
		c := &all[i]
		if c.Action != changes.Keep && c.Action != changes.Update || len(kept[c.Key][0].Sandboxes) == 0 {
			continue
		}
		volumes, err := outdated(dirs, there[c.Key], desired.ObjectsOf(c.Key))
		if err != nil {
			return nil, manifest.Desired{}, err
		}
		c.Refreshes(volumes)
	}
	documents, err := served(dirs)
	return append(all, changes.OfWorkloads(desired, documents)...), desired, err
}

// Origins returns where the manifests of pods were read, of which all are the checkpoints.
func Origins(all map[pod.Key][]*checkpoint.Checkpoint) map[pod.Key]manifest.Origin {
	origins := map[pod.Key]manifest.Origin{}
	for key, revisions := range all {
		origins[key] = manifest.OriginOf(revisions[0].Pod)
	}
	return origins
}

// Adopt makes the sources go on with the pods that exist, of which all are the checkpoints, and with a record of them.
// sharesPorts is Opener.SharesPorts.
func (o *Opener) Adopt(all map[pod.Key][]*checkpoint.Checkpoint, recorded mux.Record, sharesPorts func() bool) {
	o.Running, o.Stored, o.Record, o.SharesPorts = Origins(all), map[pod.Key]*v1.Pod{}, recorded, sharesPorts
	for key, revisions := range all {
		if c := revisions[0]; c.Owner == owner.Serve {
			o.Stored[key] = c.Pod
		}
	}
}

// First merges the first snapshot of each of the opened sources.
func (o Opener) First(ctx context.Context, all []manifest.Source) (manifest.Desired, error) {
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()
	sources := manifest.Sources{Running: o.Running}
	out := make(chan manifest.Snapshot)
	ended := make(chan error, len(all))
	for _, s := range all {
		sources.Order = append(sources.Order, s.Name())
		reading.Go(func() { ended <- s.Run(ctx, out) })
	}
	for spoken := map[string]bool{}; len(spoken) < len(all); {
		select {
		case s := <-out:
			if !spoken[s.Source] {
				sources.Record(s)
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
	if o.Record != nil {
		sources.Recorded = o.Record.Recorded()
	}
	d := manifest.Merge(sources)
	if o.Record != nil { // what is rolled back stays so, and nothing new is decided
		for id := range sources.Recorded.Revisions {
			sources.Recorded.Frozen[id] = true
		}
		mux.Rollback{All: true, Refusal: o.Policy.Refusal}.Apply(&d, sources.Recorded)
	}
	return d, nil
}
