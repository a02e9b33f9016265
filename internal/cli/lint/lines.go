package lint

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/decode"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
)

// texts finds the lines of pods' fields. A pod does not know them: what is wrong beside other documents is found after
// its own was read.
type texts struct {
	stdin *bytes.Buffer // what was read of standard input
	read  map[string][]*decode.Document
}

// documents returns the documents of a file; none if it cannot be read again, such as a pipe.
func (t *texts) documents(path string) []*decode.Document {
	if docs, done := t.read[path]; done {
		return docs
	}
	var text []byte
	if path == manifest.Stdin {
		text = t.stdin.Bytes()
	} else if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		text, _ = os.ReadFile(path)
	}
	t.read[path], _ = decode.Parse(text)
	return t.read[path]
}

// volume returns the path of a field of a pod's volume in its document, and the line; 0 if that is not known. index is
// the volume's in the pod.
func (t *texts) volume(p *v1.Pod, index int, field string) (path string, line int) {
	for _, d := range t.documents(manifest.OriginOf(p).Path) {
		outer, spec := find(d.Value, p)
		if spec == nil {
			continue
		}
		volumes, _ := spec["volumes"].([]any)
		name := p.Spec.Volumes[index].Name
		if at := slices.IndexFunc(volumes, func(v any) bool { return text(v, "name") == name }); at >= 0 {
			index = at // podrun drops some volumes
		}
		path = fmt.Sprintf("%sspec.volumes[%d].%s", outer, index, field)
		return path, d.LineOf(path)
	}
	return fmt.Sprintf("spec.volumes[%d].%s", index, field), 0
}

// find returns the spec of a pod, or of the template that it is made of, in a document, with what precedes it there.
func find(document any, p *v1.Pod) (outer string, spec map[string]any) {
	if items, isList := get(document, "items").([]any); isList {
		for i, item := range items {
			if in, spec := find(item, p); spec != nil {
				return "items[" + strconv.Itoa(i) + "]." + in, spec
			}
		}
		return "", nil
	}
	of, is := workload.Of(p)
	if !is {
		of = workload.ID{Kind: "Pod", Key: pod.Key{Namespace: p.Namespace, Name: pod.ManifestName(p)}}
	}
	meta := get(document, "metadata")
	name, namespace := text(meta, "name"), cmp.Or(text(meta, "namespace"), v1.NamespaceDefault)
	if cmp.Or(text(document, "kind"), "Pod") != string(of.Kind) || namespace != of.Key.Namespace ||
		name != of.Key.Name && (is || name != p.Name) {
		return "", nil
	}
	if is {
		outer, document = "spec.template.", get(get(document, "spec"), "template")
	}
	spec, _ = get(document, "spec").(map[string]any)
	return outer, spec
}

// get returns a field of a document's value; nil if it has none.
func get(value any, field string) any {
	object, _ := value.(map[string]any)
	return object[field]
}

func text(value any, field string) string {
	s, _ := get(value, field).(string)
	return s
}
