package images

import (
	"slices"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
)

// Needed returns the images that pods may be started from: those that manifests name, and
// those loaded from archives, which may not be available anywhere else. sure is false while an
// existing manifest cannot be read.
func (a Archives) Needed(want manifest.Desired) (refs []string, sure bool) {
	for _, p := range want.Pods {
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
