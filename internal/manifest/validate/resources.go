package validate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcehelper "k8s.io/component-helpers/resource"

	"podrun.io/podrun/internal/pod"
)

// validatePodResources validates the pod-level resources. The requests of the containers together
// must fit into the pod's requests, and the limits of each container into the pod's limits.
func validatePodResources(p *v1.Pod, path *field.Path) field.ErrorList {
	own := p.Spec.Resources
	if own == nil {
		return nil
	}
	errs := validateResources(own, path)
	errs = append(errs, validatePodResourceNames(own.Limits, path.Child("limits"))...)
	errs = append(errs, validatePodResourceNames(own.Requests, path.Child("requests"))...)
	if own.Claims != nil {
		errs = append(errs, field.Forbidden(path.Child("claims"), "can be set for containers only"))
	}
	of := resourcehelper.AggregateContainerRequests(p, resourcehelper.PodResourcesOptions{})
	for _, name := range sorted(of) {
		request, given := own.Requests[name]
		if sum := of[name]; given && sum.Cmp(request) > 0 {
			errs = append(errs, field.Invalid(path.Child("requests").Key(string(name)), request.String(),
				fmt.Sprintf("must be at least what the containers ask for, %s", sum.String())))
		}
	}
	for i := range p.Spec.Containers {
		limits := p.Spec.Containers[i].Resources.Limits
		for _, name := range sorted(limits) {
			limit, most := limits[name], own.Limits[name]
			if _, given := own.Limits[name]; given && limit.Cmp(most) > 0 {
				at := field.NewPath("spec", "containers").Index(i).Child("resources", "limits").Key(string(name))
				errs = append(errs, field.Invalid(at, limit.String(),
					fmt.Sprintf("must be at most the pod's limit, %s", most.String())))
			}
		}
	}
	return errs
}

// validatePodResourceNames refuses resources that only containers can have.
func validatePodResourceNames(list v1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	supported := []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceHugePagesPrefix}
	for _, name := range sorted(list) {
		switch {
		case name == v1.ResourceEphemeralStorage:
			errs = append(errs, field.NotSupported(path, name, supported))
		case pod.IsDevice(name):
			errs = append(errs, field.NotSupported(path.Key(string(name)), name, supported))
		}
	}
	return errs
}

func validateResources(r *v1.ResourceRequirements, path *field.Path) field.ErrorList {
	errs := validateQuantities(r.Limits, path.Child("limits"))
	own := maps.Clone(r.Requests) // those that a limit says, such as what is missing, have its errors
	maps.DeleteFunc(own, func(name v1.ResourceName, request resource.Quantity) bool {
		limit, is := r.Limits[name]
		return is && limit.Cmp(request) == 0
	})
	errs = append(errs, validateQuantities(own, path.Child("requests"))...)
	for _, name := range sorted(r.Requests) {
		request := r.Requests[name]
		limit, ok := r.Limits[name]
		switch {
		case ok && whole(name) && request.Cmp(limit) != 0:
			errs = append(errs, field.Invalid(path.Child("requests"), request.String(),
				fmt.Sprintf("must be equal to %s limit of %s", name, limit.String())))
		case ok && request.Cmp(limit) > 0:
			errs = append(errs, field.Invalid(path.Child("requests"), request.String(),
				fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String())))
		case !ok && whole(name):
			errs = append(errs, field.Required(path.Child("limits"), fmt.Sprintf("%s needs a limit", name)))
		}
	}
	given := append(sorted(r.Limits), sorted(r.Requests)...)
	if slices.ContainsFunc(given, isHugePages) &&
		!slices.Contains(given, v1.ResourceCPU) && !slices.Contains(given, v1.ResourceMemory) {
		errs = append(errs, field.Forbidden(path, "huge pages need cpu or memory beside them"))
	}
	return errs
}

// validateResizePolicy validates the resize policy of a container.
func validateResizePolicy(s *v1.PodSpec, c *v1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	taken := map[v1.ResourceName]bool{}
	for i, policy := range c.ResizePolicy {
		at := path.Index(i)
		if taken[policy.ResourceName] {
			errs = append(errs, field.Duplicate(at, policy.ResourceName))
		}
		taken[policy.ResourceName] = true
		errs = append(errs, given(policy.ResourceName, at.Child("resourceName"), v1.ResourceCPU, v1.ResourceMemory)...)
		errs = append(errs,
			given(policy.RestartPolicy, at.Child("restartPolicy"), v1.NotRequired, v1.RestartContainer)...)
		if s.RestartPolicy == v1.RestartPolicyNever && policy.RestartPolicy == v1.RestartContainer {
			errs = append(errs, field.Invalid(at.Child("restartPolicy"), policy.RestartPolicy,
				"must be 'NotRequired' when pod `restartPolicy` is 'Never'"))
		}
	}
	return errs
}

// given returns an error if value is empty or not one of supported.
func given[T ~string](value T, path *field.Path, supported ...T) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return oneOf(value, path, supported...)
}

// whole reports whether the request of a resource must be equal to its limit.
func whole(name v1.ResourceName) bool { return isHugePages(name) || isOwnDevice(name) }

func isHugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

func validateQuantities(list v1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range sorted(list) {
		amount, at := list[name], path.Key(string(name))
		errs = append(errs, validateResourceName(name, at)...)
		if amount.Sign() < 0 {
			errs = append(errs, field.Invalid(at, amount.String(), "must be greater than or equal to 0"))
		}
		if most, limited := pod.MostOf(name); limited && amount.CmpInt64(most) > 0 {
			errs = append(errs, field.Invalid(at, amount.String(), fmt.Sprintf("must be at most %d", most)))
		}
		if isExtended(name) && amount.CmpInt64(amount.Value()) != 0 {
			errs = append(errs, field.Invalid(at, amount.String(), "must be an integer"))
		}
		if !isHugePages(name) {
			continue
		}
		size, whole := pod.PageSize(name)
		switch {
		case !whole:
			errs = append(errs, field.Invalid(at, string(name), "must name a size of pages, as in hugepages-2Mi"))
		case amount.Value()%size != 0:
			errs = append(errs, field.Invalid(at, amount.String(),
				fmt.Sprintf("must be a multiple of %s", strings.TrimPrefix(string(name), v1.ResourceHugePagesPrefix))))
		}
	}
	return errs
}

// validateResourceName validates the name of a resource. A name with a domain is a device; whether
// the node has it is not checked here.
func validateResourceName(name v1.ResourceName, at *field.Path) field.ErrorList {
	errs := invalid(at, name, validation.IsQualifiedName(string(name)))
	switch {
	case name == v1.ResourceCPU, name == v1.ResourceMemory, name == v1.ResourceEphemeralStorage, isHugePages(name):
	case !pod.IsDevice(name):
		errs = append(errs, field.Invalid(at, name,
			"must be cpu, memory, ephemeral-storage, hugepages-… or a device as example.com/gpu"))
	case isOwnDevice(name) && !isExtended(name):
		errs = append(errs, field.Invalid(at, name, "must be a device's name, as example.com/gpu"))
	}
	return errs
}

// isOwnDevice reports whether name is a device outside the kubernetes.io/ name space.
func isOwnDevice(name v1.ResourceName) bool {
	return pod.IsDevice(name) && !strings.Contains(string(name), v1.ResourceDefaultNamespacePrefix)
}

// isExtended reports whether name is an extended resource by Kubernetes' rules: its quantities are
// integers, and its request equals its limit.
func isExtended(name v1.ResourceName) bool {
	return isOwnDevice(name) && !strings.HasPrefix(string(name), v1.DefaultResourceRequestsPrefix) &&
		len(validation.IsQualifiedName(v1.DefaultResourceRequestsPrefix+string(name))) == 0
}

func sorted(list v1.ResourceList) []v1.ResourceName {
	names := make([]v1.ResourceName, 0, len(list))
	for name := range list {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
