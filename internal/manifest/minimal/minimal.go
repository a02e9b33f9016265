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
	r := reducer{tree: tree}
	r.whole = r.defaulted()
	for _, part := range []string{"metadata", "spec"} {
		if fields, ok := tree[part].(map[string]any); ok {
			r.reduce(fields)
		}
	}
	return YAML(tree)
}

// reducer removes the fields from a manifest without which the pod is the same.
type reducer struct {
	tree  map[string]any
	whole []byte // the pod that tree makes
}

// defaulted returns the pod that the manifest makes, as JSON; nil if it makes none.
func (r *reducer) defaulted() []byte {
	var p v1.Pod
	text, err := json.Marshal(r.tree)
	if err != nil || json.Unmarshal(text, &p) != nil {
		return nil
	}
	defaults.Set(&p)
	if text, err = json.Marshal(&p); err != nil {
		return nil
	}
	return text
}

// reduce removes fields of an object in the tree, or of the objects in it.
func (r *reducer) reduce(object map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		value := object[name]
		delete(object, name)
		if now := r.defaulted(); now != nil && bytes.Equal(now, r.whole) {
			continue
		}
		object[name] = value
		switch value := value.(type) {
		case map[string]any:
			r.reduce(value)
		case []any:
			for _, element := range value {
				if fields, ok := element.(map[string]any); ok {
					r.reduce(fields)
				}
			}
		}
	}
}
