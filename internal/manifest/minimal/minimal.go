// Package minimal turns a pod as podrun shows it back into a manifest that a user would write: without
// status, without what podrun adds, and without the fields that the defaults set again. It is pure.
//
// Begin reading at Manifest.
package minimal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/defaults"
	"podrun.io/podrun/internal/pod"
)

// Manifest returns a manifest from which podrun makes the pod again. noSuffix says that podrun does not append
// the name of the node to the names of pods.
func Manifest(p *v1.Pod, noSuffix bool) ([]byte, error) {
	w := &v1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Spec: *p.Spec.DeepCopy()}
	w.Name, w.Namespace, w.Labels, w.Annotations = p.Name, p.Namespace, p.Labels, maps.Clone(p.Annotations)
	if !noSuffix {
		w.Name = pod.ManifestName(p)
	}
	pod.UnpinImages(w)
	for _, name := range manifest.OwnAnnotations() {
		delete(w.Annotations, name)
	}
	w.Spec.NodeName = ""
	if manifest.OriginOf(p).Source == manifest.SourceFile {
		w.Spec.Tolerations = slices.DeleteFunc(w.Spec.Tolerations, func(t v1.Toleration) bool {
			return t == v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}
		})
	}
	tree := map[string]any{}
	text, err := json.Marshal(w)
	if err == nil {
		err = json.Unmarshal(text, &tree)
	}
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", p.Name, err)
	}
	delete(tree, "status")
	whole := defaulted(tree)
	for _, part := range []string{"metadata", "spec"} {
		if fields, ok := tree[part].(map[string]any); ok {
			reduce(fields, func(object map[string]any) map[string]any { return map[string]any{part: object} })
		}
	}
	if !bytes.Equal(defaulted(tree), whole) {
		// A default depends on more than what stands around a field, which is no default known today.
		clear(tree)
		if err := json.Unmarshal(text, &tree); err != nil {
			return nil, fmt.Errorf("pod %s: %w", p.Name, err)
		}
		delete(tree, "status")
	}
	return YAML(tree)
}

// mostFields is more than any type of Kubernetes has fields. An object with more is a map of the user's, in which
// nothing is a default.
const mostFields = 64

// defaulted returns the pod that a manifest makes, as JSON; nil if it makes none.
func defaulted(tree map[string]any) []byte {
	var p v1.Pod
	text, err := json.Marshal(tree)
	if err != nil || json.Unmarshal(text, &p) != nil {
		return nil
	}
	defaults.Set(&p)
	if text, err = json.Marshal(&p); err != nil {
		return nil
	}
	return text
}

// reduce removes the fields of an object, and of the objects in it, that the defaults set again. in returns a manifest
// that has the object at its place and little else: the fields that stand beside it, without lists and objects. So the
// time that this takes grows as the manifest does, not as its square.
func reduce(object map[string]any, in func(object map[string]any) map[string]any) {
	whole := defaulted(in(object))
	for _, name := range slices.Sorted(maps.Keys(object)) {
		value := object[name]
		delete(object, name)
		if now := defaulted(in(object)); now != nil && bytes.Equal(now, whole) {
			continue
		}
		object[name] = value
		switch value := value.(type) {
		case map[string]any:
			if len(value) <= mostFields {
				around := scalars(object)
				reduce(value, func(part map[string]any) map[string]any {
					around[name] = part
					return in(around)
				})
			}
		case []any:
			around := scalars(object)
			for _, element := range value {
				if fields, ok := element.(map[string]any); ok {
					reduce(fields, func(part map[string]any) map[string]any {
						around[name] = []any{part}
						return in(around)
					})
				}
			}
		}
	}
}

// scalars returns a copy of an object without the lists and objects in it.
func scalars(object map[string]any) map[string]any {
	out := maps.Clone(object)
	maps.DeleteFunc(out, func(_ string, value any) bool {
		switch value.(type) {
		case []any, map[string]any:
			return true
		}
		return false
	})
	return out
}
