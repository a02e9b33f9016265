package changes

import (
	"encoding/json"
	"maps"
	"slices"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/workload"
)

// OfWorkloads returns a Change for each workload whose document is edited outside of its template, which is an edit of
// its pods, and for each CronJob that is created, removed or edited. there are the documents of the serve that runs.
func OfWorkloads(d manifest.Desired, there map[workload.ID]json.RawMessage) []Change {
	wanted := map[workload.ID]*workload.Workload{}
	for _, w := range d.Workloads {
		if w.Owner == nil {
			wanted[w.ID] = w
		}
	}
	var all []Change
	for _, id := range slices.SortedFunc(maps.Keys(wanted), workload.ID.Compare) {
		w := wanted[id]
		c := Change{Kind: string(id.Kind), Key: id.Key, Action: Create, Origin: manifest.OriginOf(w.Template)}
		was, exists := there[id]
		if exists {
			text, err := json.Marshal(w.Object)
			if err != nil { // these types always have a text
				panic(err)
			}
			c.Action = Update
			c.setEdits(ownSpec(was, id.Kind), ownSpec(text, id.Kind))
		}
		if !exists && id.Kind == workload.CronJob || len(c.Edits) > 0 {
			all = append(all, c)
		}
	}
	if !d.Complete || len(d.Problems) > 0 { // one may be in a manifest that cannot be read
		return all
	}
	for _, id := range slices.SortedFunc(maps.Keys(there), workload.ID.Compare) {
		if wanted[id] == nil && id.Kind == workload.CronJob {
			all = append(all, Change{Kind: string(id.Kind), Key: id.Key, Action: Remove})
		}
	}
	return all
}

// ownSpec returns the spec of a document, without the template of its pods.
func ownSpec(text json.RawMessage, kind workload.Kind) any {
	var document struct {
		Spec map[string]any `json:"spec"`
	}
	if json.Unmarshal(text, &document) != nil {
		return nil
	}
	if kind != workload.CronJob { // which has a template of Jobs
		delete(document.Spec, "template")
	}
	return map[string]any{"spec": document.Spec}
}
