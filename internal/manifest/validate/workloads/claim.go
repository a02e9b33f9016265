package workloads

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Claim validates a PersistentVolumeClaim that has its defaults.
func Claim(c *v1.PersistentVolumeClaim) field.ErrorList {
	return append(meta(&c.ObjectMeta, apivalidation.NameIsDNSSubdomain), claimSpec(&c.Spec, spec)...)
}

// claimSpec validates the fields of a claim that podrun does not refuse whatever their values are.
func claimSpec(s *v1.PersistentVolumeClaimSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	at := path.Child("accessModes")
	if len(s.AccessModes) == 0 {
		errs = append(errs, field.Required(at, "at least 1 access mode is required"))
	}
	modes := []v1.PersistentVolumeAccessMode{
		v1.ReadOnlyMany, v1.ReadWriteMany, v1.ReadWriteOnce, v1.ReadWriteOncePod,
	}
	other := false
	for i, mode := range s.AccessModes {
		if !slices.Contains(modes, mode) {
			errs = append(errs, field.NotSupported(at.Index(i), mode, modes))
		}
		other = other || mode != v1.ReadWriteOncePod && slices.Contains(modes, mode)
	}
	if other && slices.Contains(s.AccessModes, v1.ReadWriteOncePod) {
		errs = append(errs, field.Forbidden(at, "may not use ReadWriteOncePod with other access modes"))
	}
	if s.Selector != nil {
		errs = append(errs, metavalidation.ValidateLabelSelector(
			s.Selector, metavalidation.LabelSelectorValidationOptions{}, path.Child("selector"))...)
	}
	storage := path.Child("resources", "requests").Key(string(v1.ResourceStorage))
	size, ok := s.Resources.Requests[v1.ResourceStorage]
	switch {
	case !ok:
		errs = append(errs, field.Required(storage, ""))
	case size.Sign() <= 0:
		errs = append(errs, field.Invalid(storage, size.String(), "must be greater than zero"))
	}
	if name := s.StorageClassName; name != nil && *name != "" {
		errs = append(errs, invalid(path.Child("storageClassName"), *name, validation.IsDNS1123Subdomain(*name))...)
	}
	volumeModes := []v1.PersistentVolumeMode{v1.PersistentVolumeBlock, v1.PersistentVolumeFilesystem}
	if mode := s.VolumeMode; mode != nil && !slices.Contains(volumeModes, *mode) {
		errs = append(errs, field.NotSupported(path.Child("volumeMode"), *mode, volumeModes))
	}
	return errs
}
