package manifest

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"tags.cncf.io/container-device-interface/pkg/parser"
)

// deviceAnnotations are the keys, in order, of the annotations that name devices.
func deviceAnnotations(annotations map[string]string) []string {
	const prefix = "cdi.k8s.io/"
	return slices.DeleteFunc(slices.Sorted(maps.Keys(annotations)), func(key string) bool { return !strings.HasPrefix(key, prefix) })
}

// validateDevices judges how devices are named; whether the node has them shows when they are used.
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
