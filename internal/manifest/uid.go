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

// setIdentity sets the name, UID and annotations that a pod has on this node. written is the
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
	}
	SetUID(p, p.UID)
	p.Annotations[AnnotationManifestHash] = Digest(written)
	p.Annotations[AnnotationSource] = o.kind().Name
	p.Annotations[AnnotationManifest] = o.Origin.Path
	if o.kind().Tolerates {
		tolerateAll(p)
	}
}

// fullName returns the name that a pod has on this node, given its name in the manifest.
func (o LoadOptions) fullName(name string) string {
	if o.NoSuffix {
		return name
	}
	return name + "-" + o.NodeName
}

// uid returns the UID of a pod whose manifest gives none: a digest of the manifest, the node name
// and the origin.
func uid(written []byte, o LoadOptions) types.UID {
	return types.UID(Digest(written, "\nhost:", o.NodeName, "\n"+o.kind().Identity, o.Origin.Path))
}

// SetUID sets the UID of p, and AnnotationHash, by which log collectors find its log directory.
func SetUID(p *v1.Pod, uid types.UID) {
	p.UID = uid
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[AnnotationHash] = string(uid)
}

// ManifestHash returns the hash of the manifest that p was made from; "" if it is not known. The
// former version of podrun stored it in AnnotationHash.
func ManifestHash(p *v1.Pod) string {
	if hash := p.Annotations[AnnotationManifestHash]; hash != "" {
		return hash
	}
	return p.Annotations[AnnotationHash]
}

// Upgraded returns a copy of a pod that the former version of podrun saved, with the annotations of
// this version; any other pod it returns unchanged. It does not modify p. The function may be
// removed after the next release.
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

// Digest returns the first 128 bits of the SHA-256 of its arguments, in hexadecimal. The hash of a
// manifest is the Digest of its content alone, so that it does not change if the file is renamed.
func Digest(written []byte, more ...string) string {
	h := sha256.New()
	h.Write(written)
	for _, s := range more {
		h.Write([]byte(s))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// tolerateAll adds a toleration for all NoExecute taints, as pods from files have.
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

// SameRun reports whether the containers of a running pod can continue to run under a new manifest:
// no difference of the two needs new containers. The pod then retains the UID under which it runs.
func SameRun(running, wanted *v1.Pod) bool {
	if running.Name != wanted.Name || running.Namespace != wanted.Namespace ||
		running.Spec.NodeName != wanted.Spec.NodeName {
		return false
	}
	if !SameConfig(running, wanted) {
		return false
	}
	// The same manifest is the same pod, even if an older podrun derived other fields from it.
	if hash := ManifestHash(running); hash != "" && hash == ManifestHash(wanted) {
		return true
	}
	return equality.Semantic.DeepEqual(ReplacedByEdit(running), ReplacedByEdit(wanted))
}

// ReplacedByEdit returns the part of a pod that cannot change without new containers: all but its labels,
// most annotations, activeDeadlineSeconds, and the resources that can be resized in place.
func ReplacedByEdit(p *v1.Pod) *v1.Pod {
	e := &v1.Pod{Spec: p.Spec} // shallow: only what is replaced below may be written to
	e.Spec.ActiveDeadlineSeconds = nil
	ignoreScheduling(&e.Spec)
	e.Status.QOSClass = pod.QOS(p) // another class has another parent cgroup
	e.Spec.Containers, e.Spec.InitContainers = withoutSizes(p.Spec.Containers), withoutSizes(p.Spec.InitContainers)
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

// ignoreScheduling removes what only a scheduler acts on, and the readiness gates, which no container
// knows of.
func ignoreScheduling(s *v1.PodSpec) {
	s.SchedulerName, s.TopologySpreadConstraints, s.ReadinessGates = "", nil, nil
	if s.Affinity == nil {
		return
	}
	var required *v1.NodeSelector
	if node := s.Affinity.NodeAffinity; node != nil {
		required = node.RequiredDuringSchedulingIgnoredDuringExecution
	}
	s.Affinity = nil
	if required != nil {
		s.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: required,
		}}
	}
}

// withoutSizes returns copies of the containers without their CPU and memory, which can be changed
// while they run, and without resizePolicy.
func withoutSizes(containers []v1.Container) []v1.Container {
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

// builtIn has the annotations that affect how containers or their network are created, by name or
// by prefix with its slash.
var builtIn = map[string]bool{
	"cdi.k8s.io/":                                         true,
	"kubernetes.io/ingress-bandwidth":                     true,
	"kubernetes.io/egress-bandwidth":                      true,
	pod.AnnotationNetworks:                                true,
	v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix: true,
}
