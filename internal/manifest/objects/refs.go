package objects

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// Ref is a ConfigMap or Secret that a pod refers to.
type Ref struct {
	Kind string // ConfigMap or Secret
	Name string
	// Optional is set if the pod can run without it.
	Optional bool
}

// Refs returns all ConfigMaps and Secrets that a pod refers to, in the order of kinds and names.
func Refs(p *v1.Pod) []Ref {
	all := map[Ref]bool{}
	add := func(kind, name string, optional *bool) {
		all[Ref{Kind: kind, Name: name, Optional: optional != nil && *optional}] = true
	}
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		for _, from := range c.EnvFrom {
			if r := from.ConfigMapRef; r != nil {
				add(KindConfigMap, r.Name, r.Optional)
			}
			if r := from.SecretRef; r != nil {
				add(KindSecret, r.Name, r.Optional)
			}
		}
		for _, e := range c.Env {
			if e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil {
				add(KindConfigMap, e.ValueFrom.ConfigMapKeyRef.Name, e.ValueFrom.ConfigMapKeyRef.Optional)
			}
			if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
				add(KindSecret, e.ValueFrom.SecretKeyRef.Name, e.ValueFrom.SecretKeyRef.Optional)
			}
		}
	}
	for _, v := range p.Spec.Volumes {
		if v.ConfigMap != nil {
			add(KindConfigMap, v.ConfigMap.Name, v.ConfigMap.Optional)
		}
		if v.Secret != nil {
			add(KindSecret, v.Secret.SecretName, v.Secret.Optional)
		}
		if v.CSI != nil && v.CSI.NodePublishSecretRef != nil {
			add(KindSecret, v.CSI.NodePublishSecretRef.Name, nil)
		}
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.ConfigMap != nil {
				add(KindConfigMap, s.ConfigMap.Name, s.ConfigMap.Optional)
			}
			if s.Secret != nil {
				add(KindSecret, s.Secret.Name, s.Secret.Optional)
			}
		}
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b Ref) int {
		return cmp.Or(
			cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Name, b.Name),
			cmp.Compare(fmt.Sprint(a.Optional), fmt.Sprint(b.Optional)),
		)
	})
}

// MissingVolumes returns the PersistentVolumes that the claims of a pod name, and the Secrets that drivers are to be
// given with them, that there are not.
func MissingVolumes(all pod.Objects, p *v1.Pod) []Ref {
	var missing []Ref
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		claim := all.Claims[pod.Key{Namespace: p.Namespace, Name: v.PersistentVolumeClaim.ClaimName}]
		if claim == nil || claim.Spec.VolumeName == "" { // no document names its volume, but a claimRef may
			continue
		}
		volume := all.Volumes[claim.Spec.VolumeName]
		if volume == nil {
			missing = append(missing, Ref{Kind: KindVolume, Name: claim.Spec.VolumeName})
			continue
		}
		driver := volume.Spec.CSI
		if driver == nil {
			continue
		}
		for _, ref := range []*v1.SecretReference{driver.NodeStageSecretRef, driver.NodePublishSecretRef} {
			if ref != nil && all.Secrets[pod.Key{Namespace: ref.Namespace, Name: ref.Name}] == nil {
				missing = append(missing, Ref{Kind: KindSecret, Name: ref.Name})
			}
		}
	}
	return missing
}

// Exists reports whether there is a ConfigMap or Secret of this name.
func Exists(all pod.Objects, kind string, key pod.Key) bool {
	return kind == KindConfigMap && all.ConfigMaps[key] != nil || kind == KindSecret && all.Secrets[key] != nil
}

// Content returns the data of a ConfigMap or Secret in one form for both; nil if there is no such object.
func Content(all pod.Objects, kind string, key pod.Key) map[string]any {
	data := map[string]any{}
	switch m, s := all.ConfigMaps[key], all.Secrets[key]; {
	case kind == KindConfigMap && m != nil:
		for name, value := range m.Data {
			data[name] = value
		}
		for name, value := range m.BinaryData {
			data[name] = string(value)
		}
	case kind == KindSecret && s != nil:
		for name, value := range s.Data {
			data[name] = string(value)
		}
	default:
		return nil
	}
	return data
}
