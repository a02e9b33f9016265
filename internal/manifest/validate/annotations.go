package validate

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"tags.cncf.io/container-device-interface/pkg/parser"

	"podrun.io/podrun/internal/pod"
)

// validateAfter validates the format of the annotation pod.AnnotationAfter.
func validateAfter(value string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range strings.Split(value, ",") {
		namespace, name, named := strings.Cut(strings.TrimSpace(name), "/")
		if !named {
			namespace, name = "default", namespace
		}
		bad := append(validation.IsDNS1123Label(namespace), validation.IsDNS1123Subdomain(name)...)
		if len(bad) > 0 {
			errs = append(errs, field.Invalid(path, value,
				"must be comma-separated pod names, with NAMESPACE/ in front of one that is not in namespace default"))
			break
		}
	}
	return errs
}

// validateBandwidth validates the bandwidth annotations of a pod. Kubernetes leaves that to the
// network plugin.
func validateBandwidth(p *v1.Pod, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, key := range []string{pod.AnnotationEgress, pod.AnnotationIngress} {
		text, given := p.Annotations[key]
		if !given {
			continue
		}
		if _, err := pod.ParseBandwidth(text); err != nil {
			errs = append(errs, field.Invalid(path.Key(key), text, err.Error()))
		} else if p.Spec.HostNetwork {
			errs = append(errs, field.Forbidden(path.Key(key),
				"the machine's network, which hostNetwork uses, cannot be limited"))
		}
	}
	return errs
}

// validateNetworks validates the annotation for the additional networks of a pod. Whether the node
// has these networks is checked when they are used.
func validateNetworks(p *v1.Pod, path *field.Path) field.ErrorList {
	text, given := p.Annotations[pod.AnnotationNetworks]
	if !given {
		return nil
	}
	path = path.Key(pod.AnnotationNetworks)
	networks, err := pod.Networks(p)
	switch {
	case err != nil:
		return field.ErrorList{field.Invalid(path, text, err.Error())}
	case p.Spec.HostNetwork && len(networks) > 0:
		return field.ErrorList{field.Forbidden(path, "cannot be used together with hostNetwork")}
	}
	return nil
}

// deviceAnnotations returns the keys, in order, of the annotations that name CDI devices.
func deviceAnnotations(annotations map[string]string) []string {
	const prefix = "cdi.k8s.io/"
	return slices.DeleteFunc(slices.Sorted(maps.Keys(annotations)), func(key string) bool {
		return !strings.HasPrefix(key, prefix)
	})
}

// validateDevices validates the names of CDI devices. Whether the node has these devices is checked
// when they are used.
func validateDevices(annotations map[string]string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, key := range deviceAnnotations(annotations) {
		for _, name := range strings.Split(annotations[key], ",") {
			if _, _, _, err := parser.ParseQualifiedName(name); err != nil {
				errs = append(errs, field.Invalid(path.Key(key), name, "must be a device as vendor/class=name"))
			}
		}
	}
	return errs
}
