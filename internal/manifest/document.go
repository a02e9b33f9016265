package manifest

import (
	"cmp"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/manifest/decode"
	"podrun.io/podrun/internal/manifest/kinds"
	"podrun.io/podrun/internal/pod"
)

func (l *loader) document(d *decode.Document) {
	value, ok := d.Value.(map[string]any)
	o := object{doc: d, value: value}
	if !ok {
		l.failAt(o, "", "is not an object with apiVersion and kind", pod.Key{})
		return
	}
	if kind, ok := l.kind(o); ok && kind.Role == kinds.List {
		l.list(o, kind.Name)
	} else if ok {
		l.item(o, kind)
	}
}

// item loads an object that is not a list.
func (l *loader) item(o object, kind kinds.Kind) {
	switch kind.Role {
	case kinds.Pod:
		l.pod(o)
	case kinds.Object:
		l.object(o, kind)
	case kinds.Workload:
		l.workload(o, kind.Name)
	case kinds.Claim:
		l.claim(o)
	case kinds.Passed:
		l.pass(o, kind)
	}
}

// kind returns the kind of an object and whether it can be used; otherwise it adds an error.
func (l *loader) kind(o object) (kinds.Kind, bool) {
	name, isString := o.value["kind"].(string)
	kind := kinds.Of(name)
	switch {
	case o.value["kind"] == nil || isString && name == "":
		l.failAt(o, "kind", "Required value: one of "+strings.Join(kinds.Acted(), ", "), pod.Key{})
	case kind.Role == kinds.Unknown:
		return kind, l.unsupportedKind(o, kinds.Acted())
	}
	good := kind.Role != kinds.Unknown
	version, _ := o.value["apiVersion"].(string)
	wanted := "v1"
	if good {
		wanted = kind.APIVersion()
	}
	switch {
	case o.value["apiVersion"] == nil || o.value["apiVersion"] == "":
		l.failAt(o, "apiVersion", "Required value: "+wanted, pod.Key{})
		good = false
	case good && !kind.Has(version) || !good && version != wanted:
		l.failAt(o, "apiVersion", fmt.Sprintf("Unsupported value: %s: supported values: %s",
			decode.Canonical(o.value["apiVersion"]), wanted), pod.Key{})
		good = false
	}
	return kind, good
}

// unsupportedKind adds the error that an object has none of the kinds that may be in its place.
func (l *loader) unsupportedKind(o object, supported []string) bool {
	message := fmt.Sprintf("Unsupported value: %s: supported values: %s",
		decode.Canonical(o.value["kind"]), strings.Join(supported, ", "))
	name, _ := o.value["kind"].(string)
	if near := kinds.Near(name); near != "" && near != name {
		message += fmt.Sprintf("; did you mean %q?", near)
	}
	l.failAt(o, "kind", message, pod.Key{})
	return false
}

// pass passes over an object of a kind that is not needed, with a warning, or with an error if the
// rules say so. Of its content only the name is read.
func (l *loader) pass(o object, kind kinds.Kind) {
	meta, _ := o.value["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	generated, _ := meta["generateName"].(string)
	if name = cmp.Or(name, generated); name == "" {
		l.failAt(o, "metadata.name", "Required value: name or generateName is required", pod.Key{})
		return
	}
	message := fmt.Sprintf("%s %s is passed over: %s", kind.Name, name, kind.Meaning)
	if l.Rules.StrictKinds {
		l.failAt(o, "kind", "Forbidden: --strict-kinds: "+message, pod.Key{})
		return
	}
	l.warn(o, []decode.Error{{Path: "kind", Message: message}}, pod.Key{})
}

// listType has the fields of a PodList or List.
type listType struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ListMeta `json:"metadata"`
	Items           []any           `json:"items"`
}

func (l *loader) list(o object, kind string) {
	for _, e := range decode.Check(o.value, reflect.TypeFor[listType](), o.path, nil) {
		l.failAt(o, e.Path, e.Message, pod.Key{})
	}
	items, _ := o.value["items"].([]any)
	for i, item := range items {
		one := object{doc: o.doc, path: o.at("items[" + strconv.Itoa(i) + "]")}
		value, ok := item.(map[string]any)
		if !ok {
			l.failAt(one, "", "is not an object", pod.Key{})
			continue
		}
		one.value = value
		// The items of a PodList need no kind and apiVersion.
		if kind == "PodList" && value["kind"] == nil && value["apiVersion"] == nil {
			l.pod(one)
			continue
		}
		of := kinds.Of(fmt.Sprint(value["kind"]))
		switch {
		case kind == "PodList" && of.Role != kinds.Pod && value["kind"] != nil:
			l.unsupportedKind(one, []string{"Pod"})
			continue
		case of.Role == kinds.List:
			l.failAt(one, "kind", fmt.Sprintf("Unsupported value: %q: a list has no lists in it", of.Name), pod.Key{})
			continue
		}
		if of, ok := l.kind(one); ok {
			l.item(one, of)
		}
	}
}
