package pod

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/pod/quantity"
)

// ofPod is the prefix of the resources of the pod as a whole in the format of ResourcesOf.
const ofPod = "pod."

// sized lists the resources that can be changed while a container runs.
func sized() []v1.ResourceName { return []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} }

// ResourcesOf returns the CPU and memory of c in p, and of p as a whole, as text; "" if neither
// sets any. Equal texts mean equal cgroup settings.
func ResourcesOf(p *v1.Pod, c *v1.Container) string {
	var out []string
	spell := func(whose string, r *v1.ResourceRequirements) {
		if r == nil {
			return
		}
		for _, of := range []struct {
			kind string
			list v1.ResourceList
		}{{"requests", r.Requests}, {"limits", r.Limits}} {
			for _, name := range sized() {
				if quantity, ok := of.list[name]; ok {
					out = append(out, whose+of.kind+"."+string(name)+"="+quantity.String())
				}
			}
		}
	}
	spell("", &c.Resources)
	spell(ofPod, p.Spec.Resources)
	return strings.Join(out, ",")
}

// SizeOf returns the CPU and memory of all of p's containers as text; "" if none sets any.
func SizeOf(p *v1.Pod) string {
	var size string
	for _, c := range AllContainers(p) {
		if of := ResourcesOf(p, c); of != "" {
			size += c.Name + ":" + of + ";"
		}
	}
	return size
}

// ParseResources parses a text of ResourcesOf into the container's own resources and the pod's.
func ParseResources(spelled string) (own, pods v1.ResourceRequirements) {
	for _, part := range strings.Split(spelled, ",") {
		key, value, _ := strings.Cut(part, "=")
		amount, err := quantity.Parse(value)
		if err != nil {
			continue // not written by ResourcesOf
		}
		of := &own
		if rest, whole := strings.CutPrefix(key, ofPod); whole {
			key, of = rest, &pods
		}
		kind, name, _ := strings.Cut(key, ".")
		list := &of.Limits
		if kind == "requests" {
			list = &of.Requests
		}
		if *list == nil {
			*list = v1.ResourceList{}
		}
		(*list)[v1.ResourceName(name)] = amount
	}
	return own, pods
}

// RunsWith returns the resources of an instance of c that runs with those in spelled, a text of
// ResourcesOf: CPU and memory from spelled, everything else from c.
func RunsWith(c *v1.Container, spelled string) v1.ResourceRequirements {
	own, _ := ParseResources(spelled)
	out := *c.Resources.DeepCopy()
	for _, of := range []struct {
		list *v1.ResourceList
		has  v1.ResourceList
	}{{&out.Requests, own.Requests}, {&out.Limits, own.Limits}} {
		for _, name := range sized() {
			delete(*of.list, name)
			if quantity, has := of.has[name]; has {
				if *of.list == nil {
					*of.list = v1.ResourceList{}
				}
				(*of.list)[name] = quantity
			}
		}
	}
	return out
}

// NeedsRestart reports whether c's resizePolicy requires a new instance to change its resources
// from from to to, both in the format of ResourcesOf. As in the kubelet, the pod's limit counts if
// c has none of its own.
func NeedsRestart(c *v1.Container, from, to string) bool {
	for _, policy := range c.ResizePolicy {
		if policy.RestartPolicy != v1.RestartContainer {
			continue
		}
		requested, limited := effective(from, policy.ResourceName)
		request, limit := effective(to, policy.ResourceName)
		if request.Cmp(requested) != 0 || limit.Cmp(limited) != 0 {
			return true
		}
	}
	return false
}

func effective(spelled string, name v1.ResourceName) (request, limit resource.Quantity) {
	own, pods := ParseResources(spelled)
	limit, has := own.Limits[name]
	if !has {
		limit = pods.Limits[name]
	}
	return own.Requests[name], limit
}

// SameSize reports whether a and b, which have the same containers, have the same resources, in all
// containers and as a whole.
func SameSize(a, b *v1.Pod) bool {
	has := map[string]*v1.Container{}
	for _, c := range AllContainers(b) {
		has[c.Name] = c
	}
	for _, c := range AllContainers(a) {
		if of := has[c.Name]; of != nil && !equality.Semantic.DeepEqual(c.Resources, of.Resources) {
			return false
		}
	}
	return equality.Semantic.DeepEqual(a.Spec.Resources, b.Spec.Resources)
}

// Sized returns a copy of p with the resources of like, which has the same containers.
func Sized(p, like *v1.Pod) *v1.Pod {
	p = p.DeepCopy()
	p.Spec.Resources = like.Spec.Resources.DeepCopy()
	has := map[string]*v1.Container{}
	for _, c := range AllContainers(like) {
		has[c.Name] = c
	}
	for _, c := range AllContainers(p) {
		if from := has[c.Name]; from != nil {
			c.Resources = *from.Resources.DeepCopy()
		}
	}
	return p
}
