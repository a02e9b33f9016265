package manifest

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest/documents"
	"podrun.io/podrun/internal/manifest/objects"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/pod/storageclass"
)

// mergeObjects sets d.Objects to the objects of all sources to which pods refer. Of one that is defined twice,
// it uses the definition of the first source, in it of the first file by name, and adds a Problem
// for the other.
func (s Sources) mergeObjects(d *Desired) {
	d.Objects = pod.Objects{
		ConfigMaps: map[pod.Key]*v1.ConfigMap{}, Secrets: map[pod.Key]*v1.Secret{},
		CSIDrivers: map[string]*pod.CSIDriver{}, Volumes: map[string]*v1.PersistentVolume{},
		Claims: map[pod.Key]*v1.PersistentVolumeClaim{}, Classes: map[string]*storageclass.Class{},
	}
	d.Objects.Partial = !d.Complete || slices.ContainsFunc(d.Problems, func(p Problem) bool { return p.Blind })
	used := map[Name]Origin{}
	for _, source := range s.Order {
		read := slices.Clone(s.Last[source].Objects)
		slices.SortStableFunc(read, func(a, b Object) int { return cmp.Compare(a.Origin.Path, b.Origin.Path) })
		for _, o := range read {
			n := o.Name()
			first, twice := used[n]
			if twice && (first == o.Origin || o.IsPlain()) {
				continue // one file that two sources read, or a claim that several pods have
			}
			if twice && (Object{Object: objects.Object{Claim: d.Objects.Claims[n.Key]}}).IsPlain() {
				twice = false // the one that names a volume says more
			}
			if twice {
				err := &DuplicateError{Kind: n.Kind, Key: n.Key, Used: first, Not: o.Origin}
				d.Problems = append(d.Problems, Problem{Origin: o.Origin, Err: err})
				continue
			}
			used[n] = o.Origin
			o.Add(&d.Objects)
		}
		for _, w := range s.Last[source].Workloads {
			for _, c := range documents.Claims(w) {
				if key := (pod.Key{Namespace: c.Namespace, Name: c.Name}); d.Objects.Claims[key] == nil {
					d.Objects.Claims[key] = c
				}
			}
		}
	}
}
