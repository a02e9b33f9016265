package manifest

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcehelper "k8s.io/component-helpers/resource"
)

// validatePodResources judges the pod's own, which its containers' must fit into.
func validatePodResources(p *v1.Pod, path *field.Path) field.ErrorList {
	own := p.Spec.Resources
	if own == nil {
		return nil
	}
	errs := validateResources(own, path)
	if own.Claims != nil {
		errs = append(errs, field.Forbidden(path.Child("claims"), "are containers' only"))
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
				errs = append(errs, field.Invalid(at, limit.String(), fmt.Sprintf("must be at most the pod's limit, %s", most.String())))
			}
		}
	}
	return errs
}

func validateResources(r *v1.ResourceRequirements, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	judge := func(list v1.ResourceList, path *field.Path) {
		for _, name := range sorted(list) {
			if quantity := list[name]; quantity.Sign() < 0 {
				errs = append(errs, field.Invalid(path.Key(string(name)), quantity.String(), "must be greater than or equal to 0"))
			}
		}
	}
	judge(r.Limits, path.Child("limits"))
	judge(r.Requests, path.Child("requests"))
	errs = append(errs, validateResourceNames(r, path)...)
	for _, name := range sorted(r.Requests) {
		request := r.Requests[name]
		limit, ok := r.Limits[name]
		if ok && request.Cmp(limit) > 0 {
			errs = append(errs, field.Invalid(path.Child("requests"), request.String(),
				fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String())))
		}
	}
	return errs
}

// validateResourceNames refuses what the table of fields let through since it has no value; it counts as 0.
func validateResourceNames(r *v1.ResourceRequirements, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	refuse := func(name v1.ResourceName, path *field.Path) {
		if name != v1.ResourceCPU && name != v1.ResourceMemory {
			errs = append(errs, field.Forbidden(path.Key(string(name)), "not supported yet"))
		}
	}
	for _, name := range sorted(r.Limits) {
		refuse(name, path.Child("limits"))
	}
	for _, name := range sorted(r.Requests) {
		if _, byDefault := r.Limits[name]; !byDefault {
			refuse(name, path.Child("requests"))
		}
	}
	return errs
}

func sorted(list v1.ResourceList) []v1.ResourceName {
	names := make([]v1.ResourceName, 0, len(list))
	for name := range list {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
