package images

import (
	"maps"
	"slices"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
)

// Held returns, by digest, the images that a rollback would run, or that pods were updated to.
func Held(want manifest.Desired) []string {
	var refs []string
	for _, h := range want.Revisions {
		refs = append(refs, h.Held()...)
	}
	return refs
}

// Needed returns the images that pods may be started from: those that manifests name, also for pods that do not exist
// now, such as those of a CronJob; those of the revisions that a rollback would run; and those loaded from archives,
// which may not be available anywhere else. sure is false while an existing manifest cannot be read.
func (a Archives) Needed(want manifest.Desired) (refs []string, sure bool) {
	pods := slices.Collect(maps.Values(want.Pods))
	for _, w := range want.Workloads {
		pods = append(pods, w.Template)
	}
	for _, h := range want.Revisions {
		if h.Good != nil {
			pods = append(pods, h.Good.Template)
		}
	}
	refs = Held(want)
	for _, p := range pods {
		for _, c := range pod.AllContainers(p) {
			refs = append(refs, c.Image)
		}
		for _, v := range p.Spec.Volumes {
			if v.Image != nil {
				refs = append(refs, v.Image.Reference)
			}
		}
	}
	for _, archive := range a.loaded() {
		refs = append(refs, archive.Names...)
	}
	blind := slices.ContainsFunc(want.Problems, func(p manifest.Problem) bool { return p.Blind })
	return refs, want.Complete && !blind
}
