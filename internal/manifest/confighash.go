package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest/decode"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
)

const (
	// AnnotationRestart with the value "true" makes an edit of a ConfigMap or Secret that a pod
	// refers to replace the pod, like an edit of the pod itself.
	AnnotationRestart = "podrun.io/restart-on-change"
	// AnnotationConfig is set on pods with AnnotationRestart: a hash of all ConfigMaps and Secrets
	// that they refer to.
	AnnotationConfig = "podrun.io/config.hash"
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

// Missing returns the ConfigMaps and Secrets that a pod needs to start and that no manifest
// defines.
func (d Desired) Missing(p *v1.Pod) []Ref {
	var missing []Ref
	for _, r := range Refs(p) {
		if content(d.Objects, p.Namespace, r) == nil && !r.Optional {
			missing = append(missing, r)
		}
	}
	return missing
}

// content returns the data of a ConfigMap or Secret in one form for both; nil if there is no such
// object.
func content(all pod.Objects, namespace string, r Ref) map[string]any {
	key := pod.Key{Namespace: namespace, Name: r.Name}
	data := map[string]any{}
	switch m, s := all.ConfigMaps[key], all.Secrets[key]; {
	case r.Kind == KindConfigMap && m != nil:
		for name, value := range m.Data {
			data[name] = value
		}
		for name, value := range m.BinaryData {
			data[name] = string(value)
		}
	case r.Kind == KindSecret && s != nil:
		for name, value := range s.Data {
			data[name] = string(value)
		}
	default:
		return nil
	}
	return data
}

// annotateConfig sets AnnotationConfig on the pods with AnnotationRestart, in copies of them, and derives their UID
// from it unless the manifest gives one. A pod gets no annotation while an object that it needs is missing, nor a
// running pod while not all sources were read: it then stays as it is.
func (s Sources) annotateConfig(d *Desired) {
	for key, p := range d.Pods {
		if of, _ := workload.Of(p); p.Annotations[AnnotationRestart] != "true" || of.Kind == workload.Job {
			continue // what has ended of a Job must not run again
		}
		marked := p.DeepCopy()
		d.Pods[key] = marked
		_, runs := s.Running[key]
		if len(d.Missing(p)) > 0 || runs && !d.Complete {
			continue
		}
		all := []any{}
		for _, r := range Refs(p) {
			one := []any{r.Kind, r.Name, nil}
			if data := content(d.Objects, p.Namespace, r); data != nil {
				one[2] = data
			}
			all = append(all, one)
		}
		SetConfig(marked, Digest(decode.Canonical(all)), d.GivenUIDs[p.UID])
	}
}

// SetConfig sets AnnotationConfig of p, and the UID of what then is another pod, unless its manifest gives that.
func SetConfig(p *v1.Pod, hash string, given bool) {
	p.Annotations[AnnotationConfig] = hash
	if !given {
		SetUID(p, pod.UID(Digest([]byte(p.UID), "\nconfig:", hash)))
	}
}

// givenUIDs returns the UIDs that manifests give.
func (s Sources) givenUIDs() map[pod.UID]bool {
	given := map[pod.UID]bool{}
	for _, last := range s.Last {
		for _, uid := range last.GivenUIDs {
			given[uid] = true
		}
	}
	return given
}

// SameConfig reports whether the ConfigMaps and Secrets of wanted have the content with which the
// running pod was started; true also if that is not known.
func SameConfig(running, wanted *v1.Pod) bool {
	now := wanted.Annotations[AnnotationConfig]
	return now == "" || now == running.Annotations[AnnotationConfig]
}

// KeepConfig copies AnnotationConfig of a running pod to its new manifest, kept, unless that has
// one.
func KeepConfig(kept, running *v1.Pod) {
	if was := running.Annotations[AnnotationConfig]; was != "" && kept.Annotations[AnnotationConfig] == "" {
		kept.Annotations[AnnotationConfig] = was
	}
}
