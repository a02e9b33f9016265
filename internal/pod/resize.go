package pod

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
)

// ofPod comes before what the pod has as a whole in what ResourcesOf spells.
const ofPod = "pod."

// sized are what can be changed while a container runs.
func sized() []v1.ResourceName { return []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} }

// ResourcesOf spells what CPU and memory c has in p, with what the pod has as a whole; "" where neither
// says anything. The same text means the same cgroup.
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

// SizeOf spells the CPU and memory of all of p's containers; "" where none has any.
func SizeOf(p *v1.Pod) string {
	var size string
	for _, c := range AllContainers(p) {
		if of := ResourcesOf(p, c); of != "" {
			size += c.Name + ":" + of + ";"
		}
	}
	return size
}

// read is what spelled says of the container's own, and of the pod's.
func read(spelled string) (own, pods v1.ResourceRequirements) {
	for _, part := range strings.Split(spelled, ",") {
		key, value, _ := strings.Cut(part, "=")
		quantity, err := resource.ParseQuantity(value)
		if err != nil {
			continue // nothing that ResourcesOf wrote
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
		(*list)[v1.ResourceName(name)] = quantity
	}
	return own, pods
}

// RunsWith are the resources of an instance of c that was seen to run with what is spelled: of CPU and memory
// those, of all else c's.
func RunsWith(c *v1.Container, spelled string) v1.ResourceRequirements {
	own, _ := read(spelled)
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

// NeedsRestart reports that c's resizePolicy asks for a new instance where one that runs with what from spells
// is to have what to spells. As by the kubelet, a limit of the pod's counts where c has none of its own.
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
	own, pods := read(spelled)
	limit, has := own.Limits[name]
	if !has {
		limit = pods.Limits[name]
	}
	return own.Requests[name], limit
}

// SameSize reports that all of a's containers, and a as a whole, have the resources that b's have.
func SameSize(a, b *v1.Pod) bool {
	return equality.Semantic.DeepEqual(a, Sized(a, b))
}

// Sized is p with the resources of like, which has the same containers.
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
