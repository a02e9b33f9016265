package manifest

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest/decode"
	"podrun.io/podrun/internal/manifest/objects"
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
type Ref = objects.Ref

// Refs returns all ConfigMaps and Secrets that a pod refers to, in the order of kinds and names.
func Refs(p *v1.Pod) []Ref { return objects.Refs(p) }

// Missing returns the ConfigMaps and Secrets that a pod needs to start and that no manifest
// defines.
func (d Desired) Missing(p *v1.Pod) []Ref {
	var missing []Ref
	for _, r := range Refs(p) {
		if !r.Optional && !objects.Exists(d.Objects, r.Kind, pod.Key{Namespace: p.Namespace, Name: r.Name}) {
			missing = append(missing, r)
		}
	}
	return missing
}

// MissingVolumes does so for PersistentVolumes and their Secrets, which have no part in AnnotationConfig.
func (d Desired) MissingVolumes(p *v1.Pod) []Ref { return objects.MissingVolumes(d.Objects, p) }

// annotateConfig sets AnnotationConfig on the pods with AnnotationRestart, in copies of them, and derives their UID
// from it unless the manifest gives one. A pod gets no annotation while an object that it needs is missing, nor a
// running pod while not all sources were read: it then stays as it is.
func (s Sources) annotateConfig(d *Desired) {
	hashes := configHashes{objects: d.Objects, encoded: map[Name]encoded{}, sets: map[string]string{}}
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
		SetConfig(marked, hashes.of(p.Namespace, Refs(p)), d.GivenUIDs[p.UID])
	}
}

// maxHashed is the maximum size of the content that is hashed as a whole, in bytes. The hash of larger content is that
// of the digests of its objects, or a few large ones would be hashed for each pod that refers to them. Why not always:
// a pod that runs has the hash of the whole, and another one restarts it when podrun is upgraded. So does another
// maximum.
const maxHashed = 1 << 20

// configHashes are the hashes of the ConfigMaps and Secrets to which pods refer. Each object is encoded once, and so is
// each set of them hashed, however many pods refer to it.
type configHashes struct {
	objects pod.Objects
	encoded map[Name]encoded
	sets    map[string]string // hashes, by the digests of what is in the set
}

// encoded is the canonical JSON of the content of an object; null if there is no such object.
type encoded struct {
	size   int
	text   string // empty if it is too large to be hashed again
	digest string
}

// of returns the hash of what a pod in a namespace refers to. As a whole, that is the canonical JSON of a list of lists
// of a kind, a name and the content.
func (h configHashes) of(namespace string, refs []Ref) string {
	size, digests, texts := 0, []any{}, []string{}
	for _, r := range refs {
		e := h.object(Name{r.Kind, pod.Key{Namespace: namespace, Name: r.Name}})
		size += e.size
		digests = append(digests, []any{r.Kind, r.Name, e.digest})
		head := strings.TrimSuffix(string(decode.Canonical([]any{r.Kind, r.Name})), "]")
		texts = append(texts, ",", head, ",", e.text, "]")
	}
	set := decode.Canonical(digests)
	hash, done := h.sets[string(set)]
	switch {
	case done:
		return hash
	case size > maxHashed:
		hash = Digest(set)
	default:
		hash = Digest([]byte("["), append(texts[min(1, len(texts)):], "]")...)
	}
	h.sets[string(set)] = hash
	return hash
}

func (h configHashes) object(n Name) encoded {
	e, done := h.encoded[n]
	if done {
		return e
	}
	text := []byte("null")
	if data := objects.Content(h.objects, n.Kind, n.Key); data != nil {
		text = decode.Canonical(data)
	}
	e = encoded{size: len(text), digest: Digest(text)}
	if e.size <= maxHashed {
		e.text = string(text)
	}
	h.encoded[n] = e
	return e
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
