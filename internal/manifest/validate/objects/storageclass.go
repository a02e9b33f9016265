package objects

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podrun.io/podrun/internal/pod/storageclass"
)

// The bounds of a class's parameters, their number and bytes, are the API server's.
const (
	mostParameters    = 512
	longestParameters = 256 << 10
)

// StorageClass validates a StorageClass by the API server's rules for its creation, but for allowedTopologies, which
// have no meaning here.
func StorageClass(c *storageclass.Class) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(
		&c.ObjectMeta, false, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	at := field.NewPath("provisioner")
	if c.Provisioner == "" {
		errs = append(errs, field.Required(at, ""))
	} else {
		for _, why := range validation.IsQualifiedName(strings.ToLower(c.Provisioner)) {
			errs = append(errs, field.Invalid(at, c.Provisioner, why))
		}
	}
	errs = append(errs, parameters(c.Parameters, field.NewPath("parameters"))...)
	if p := c.ReclaimPolicy; p != nil && *p != "" {
		errs = append(errs, oneOf(field.NewPath("reclaimPolicy"), *p,
			v1.PersistentVolumeReclaimDelete, v1.PersistentVolumeReclaimRetain)...)
	}
	if m := c.VolumeBindingMode; m != nil {
		errs = append(errs, oneOf(field.NewPath("volumeBindingMode"), *m,
			storageclass.Immediate, storageclass.WaitForFirstConsumer)...)
	}
	return errs
}

func parameters(all map[string]string, path *field.Path) field.ErrorList {
	if len(all) > mostParameters {
		return field.ErrorList{field.TooLong(path, "", mostParameters)}
	}
	var errs field.ErrorList
	size := 0
	for key, value := range all {
		if key == "" {
			errs = append(errs, field.Invalid(path, key, "must not be empty"))
		}
		size += len(key) + len(value)
	}
	if size > longestParameters {
		errs = append(errs, field.TooLong(path, "", longestParameters))
	}
	return errs
}
