package validate

import (
	"maps"
	"path"
	"slices"
	"strconv"
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

// validateProgressDeadline validates the annotation pod.AnnotationProgressDeadline.
func validateProgressDeadline(p *v1.Pod, at *field.Path) field.ErrorList {
	text, given := p.Annotations[pod.AnnotationProgressDeadline]
	if seconds, err := strconv.ParseInt(text, 10, 32); !given || err == nil && seconds > 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(at.Key(pod.AnnotationProgressDeadline), text,
		"must be a number of seconds, at least 1, such as \"300\"")}
}

// validateUpdate validates the annotation pod.AnnotationUpdate.
func validateUpdate(p *v1.Pod, at *field.Path) field.ErrorList {
	why := pod.RunsAlone(p, true)
	if p.Annotations[pod.AnnotationUpdate] != pod.RollingUpdate || why == "" {
		return nil
	}
	return field.ErrorList{field.Forbidden(at.Key(pod.AnnotationUpdate), "the pod cannot run twice at a time: "+why)}
}

// validateAutoUpdate validates the annotation pod.AnnotationAutoUpdate.
func validateAutoUpdate(p *v1.Pod, at *field.Path) field.ErrorList {
	updates := p.Annotations[pod.AnnotationAutoUpdate] == pod.AutoUpdateRegistry
	if !updates || p.Annotations[pod.AnnotationRollback] != "false" {
		return nil
	}
	return field.ErrorList{field.Forbidden(at.Key(pod.AnnotationRollback),
		"an update that is not healthy is always rolled back: leave it out, or use "+pod.AnnotationAutoUpdate+
			": "+pod.AutoUpdateNotify)}
}

// validateJUnit validates the annotation pod.AnnotationJUnit.
func validateJUnit(p *v1.Pod, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	at = at.Key(pod.AnnotationJUnit)
	for _, r := range pod.JUnitReports(p) {
		i := slices.IndexFunc(p.Spec.Volumes, func(v v1.Volume) bool { return v.Name == r.Volume })
		_, bad := path.Match(r.Path, "")
		dir, last := path.Split(r.Path)
		switch {
		case r.Path == "" || last == "" || bad != nil || path.IsAbs(r.Path) || strings.ContainsAny(dir, "*?[\\") ||
			slices.Contains(strings.Split(r.Path, "/"), ".."):
			errs = append(errs, field.Invalid(at, p.Annotations[pod.AnnotationJUnit], "must be VOLUME:PATH with commas "+
				"between, each path relative, without .. and with wildcards in its last element only"))
		case i < 0:
			errs = append(errs, field.NotFound(at, r.Volume))
		case p.Spec.Volumes[i].EmptyDir == nil && p.Spec.Volumes[i].HostPath == nil &&
			p.Spec.Volumes[i].PersistentVolumeClaim == nil:
			errs = append(errs, field.Invalid(at, r.Volume, "must be an emptyDir, a hostPath or a persistentVolumeClaim"))
		}
	}
	return errs
}

// validateAppArmorAnnotations refuses an annotation that would have another profile than the default
// for a container that no field gives one: only an API server makes a field of it, and the container
// would have less protection than it asks for.
func validateAppArmorAnnotations(p *v1.Pod, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(p.Annotations)) {
		of, is := strings.CutPrefix(name, v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix)
		if !is || p.Annotations[name] == v1.DeprecatedAppArmorBetaProfileRuntimeDefault {
			continue
		}
		for _, c := range pod.AllContainers(p) {
			if c.Name == of && pod.Security(p, c).AppArmorProfile == nil {
				errs = append(errs, field.Forbidden(at.Key(name),
					"has no effect in podrun; use securityContext.appArmorProfile"))
			}
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

// DeviceAnnotations returns the keys, in order, of the annotations that name CDI devices.
func DeviceAnnotations(annotations map[string]string) []string {
	const prefix = "cdi.k8s.io/"
	return slices.DeleteFunc(slices.Sorted(maps.Keys(annotations)), func(key string) bool {
		return !strings.HasPrefix(key, prefix)
	})
}

// validateDevices validates the names of CDI devices. Whether the node has these devices is checked
// when they are used.
func validateDevices(annotations map[string]string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, key := range DeviceAnnotations(annotations) {
		for _, name := range strings.Split(annotations[key], ",") {
			if _, _, _, err := parser.ParseQualifiedName(name); err != nil {
				errs = append(errs, field.Invalid(path.Key(key), name, "must be a device as vendor/class=name"))
			}
		}
	}
	return errs
}
