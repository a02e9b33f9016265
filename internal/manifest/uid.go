package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"podrun.io/podrun/internal/pod"
)

// setIdentity gives a valid pod the name, UID and marks that it has on this node. written is the
// canonical JSON of the manifest, before any default.
func setIdentity(p *v1.Pod, written []byte, o LoadOptions) {
	if p.Name != "" {
		p.Name = o.fullName(p.Name)
	}
	p.Spec.NodeName = o.NodeName
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	if p.UID == "" {
		p.UID = uid(written, o)
	} else if p.Annotations[AnnotationRestart] == "true" {
		p.Annotations[AnnotationConfig] = fixedUID
	}
	SetUID(p, p.UID)
	p.Annotations[AnnotationManifestHash] = Digest(written)
	p.Annotations[AnnotationSource] = o.Origin.Source
	p.Annotations[AnnotationManifest] = o.Origin.Path
	if o.Origin.Source == SourceFile {
		tolerateAll(p)
	}
}

// fullName is the name on this node of the pod that its manifest gives this one.
func (o LoadOptions) fullName(name string) string {
	if o.NoSuffix {
		return name
	}
	return name + "-" + o.NodeName
}

// uid is the identity of a manifest without one of its own: of its content, its node and its place.
func uid(written []byte, o LoadOptions) types.UID {
	place := "\nfile:"
	if o.Origin.Source == SourceHTTP {
		place = "\nurl:"
	}
	return types.UID(Digest(written, "\nhost:", o.NodeName, place, o.Origin.Path))
}

// SetUID gives p a UID, and the annotation by which log collectors find its log directory.
func SetUID(p *v1.Pod, uid types.UID) {
	p.UID = uid
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[AnnotationHash] = string(uid)
}

// manifestHash returns the hash of the manifest that p was made of, "" if that is not known. Up to podrun's former
// version it was in AnnotationHash.
func manifestHash(p *v1.Pod) string {
	if hash := p.Annotations[AnnotationManifestHash]; hash != "" {
		return hash
	}
	return p.Annotations[AnnotationHash]
}

// Upgraded returns a pod that podrun's former version saved with today's annotations; any other pod as it is. p is
// not changed. It may be removed after the next release.
func Upgraded(p *v1.Pod) *v1.Pod {
	former := p.Annotations[AnnotationHash]
	if former == "" || p.Annotations[AnnotationManifestHash] != "" {
		return p
	}
	out := p.DeepCopy()
	SetUID(out, p.UID)
	out.Annotations[AnnotationManifestHash] = former
	return out
}

// Digest is 128 bits of SHA-256, in hexadecimal. For the content alone it is the manifest's hash, so that a
// file that is renamed keeps it.
func Digest(written []byte, more ...string) string {
	h := sha256.New()
	h.Write(written)
	for _, s := range more {
		h.Write([]byte(s))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// tolerateAll makes a pod stay whatever befalls the node, as pods from files do.
func tolerateAll(p *v1.Pod) {
	all := v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}
	for i := range p.Spec.Tolerations {
		if t := &p.Spec.Tolerations[i]; t.MatchToleration(&all) {
			t.TolerationSeconds = nil
			return
		}
	}
	p.Spec.Tolerations = append(p.Spec.Tolerations, all)
}

// SameRun reports that the containers of a running pod can stay under a new manifest: the two differ in
// nothing that needs new ones. The UID that it runs under stays with it.
func SameRun(running, wanted *v1.Pod) bool {
	if running.Name != wanted.Name || running.Namespace != wanted.Namespace || running.Spec.NodeName != wanted.Spec.NodeName {
		return false
	}
	if !sameConfig(running, wanted) {
		return false
	}
	// The same words mean the same, whatever an older podrun made of them.
	if hash := manifestHash(running); hash != "" && hash == manifestHash(wanted) {
		return true
	}
	return equality.Semantic.DeepEqual(essence(running), essence(wanted))
}

// essence is what of a pod cannot change without new containers: all but its labels, most annotations, and
// what its keeper looks at anew each time.
func essence(p *v1.Pod) *v1.Pod {
	e := &v1.Pod{Spec: p.Spec} // shallow: only what is replaced below may be written to
	e.Spec.ActiveDeadlineSeconds = nil
	e.Status.QOSClass = pod.QOS(p) // another class is another place among the cgroups
	e.Spec.Containers, e.Spec.InitContainers = sizeless(p.Spec.Containers), sizeless(p.Spec.InitContainers)
	e.Spec.Resources = withoutSize(p.Spec.Resources)
	for key, value := range p.Annotations {
		prefix, _, _ := strings.Cut(key, "/")
		if builtIn[key] || builtIn[prefix+"/"] {
			if e.Annotations == nil {
				e.Annotations = map[string]string{}
			}
			e.Annotations[key] = value
		}
	}
	return e
}

// sizeless are the containers without the CPU and memory that can be changed while they run, and without how
// that is done.
func sizeless(containers []v1.Container) []v1.Container {
	out := slices.Clone(containers)
	for i := range out {
		out[i].Resources, out[i].ResizePolicy = *withoutSize(&out[i].Resources), nil
	}
	return out
}

func withoutSize(r *v1.ResourceRequirements) *v1.ResourceRequirements {
	if r == nil {
		return &v1.ResourceRequirements{}
	}
	r = r.DeepCopy()
	for _, list := range []v1.ResourceList{r.Limits, r.Requests} {
		delete(list, v1.ResourceCPU)
		delete(list, v1.ResourceMemory)
	}
	return r
}

// builtIn are annotations, by name or by prefix with its slash, that containers or their network are made
// with.
var builtIn = map[string]bool{
	"cdi.k8s.io/":                                     true,
	"kubernetes.io/ingress-bandwidth":                 true,
	"kubernetes.io/egress-bandwidth":                  true,
	pod.AnnotationNetworks:                            true,
	"container.apparmor.security.beta.kubernetes.io/": true,
}
