package objects

import (
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"podrun.io/podrun/internal/pod"
)

// The bounds of tokens' lifetimes and of the period of updates, in seconds, are the API server's.
const (
	shortestToken = 10 * 60
	longestToken  = math.MaxUint32 + 1
	shortestPoll  = 10
)

// CSIDriver validates a CSIDriver by the API server's rules for its creation.
func CSIDriver(d *pod.CSIDriver) field.ErrorList {
	var errs field.ErrorList
	name := field.NewPath("metadata", "name")
	if d.Name == "" {
		errs = append(errs, field.Required(name, ""))
	} else {
		for _, why := range pod.CSIDriverName(d.Name) {
			errs = append(errs, field.Invalid(name, d.Name, why))
		}
	}
	if d.Namespace != "" {
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "namespace"), "not allowed on this type"))
	}
	spec, at := d.Spec, field.NewPath("spec")
	for i, mode := range spec.VolumeLifecycleModes {
		errs = append(errs, oneOf(at.Child("volumeLifecycleModes").Index(i), mode,
			pod.VolumeEphemeral, pod.VolumePersistent)...)
	}
	if p := spec.FSGroupPolicy; p != nil {
		errs = append(errs, oneOf(at.Child("fsGroupPolicy"), *p,
			pod.FSGroupFile, pod.FSGroupNone,
			pod.FSGroupWithFSType)...)
	}
	errs = append(errs, tokenRequests(spec.TokenRequests, at.Child("tokenRequests"))...)
	if s := spec.ServiceAccountTokenInSecrets; s != nil && len(spec.TokenRequests) == 0 {
		errs = append(errs, field.Invalid(at.Child("serviceAccountTokenInSecrets"), *s,
			"must not be set without tokenRequests"))
	}
	if s := spec.NodeAllocatableUpdatePeriodSeconds; s != nil && *s < shortestPoll {
		errs = append(errs, field.Invalid(at.Child("nodeAllocatableUpdatePeriodSeconds"), *s,
			"must be greater than or equal to 10"))
	}
	return errs
}

func tokenRequests(requests []pod.CSITokenRequest, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	var audiences []string
	for i, r := range requests {
		if slices.Contains(audiences, r.Audience) {
			errs = append(errs, field.Duplicate(path.Index(i).Child("audience"), r.Audience))
		}
		audiences = append(audiences, r.Audience)
		if s := r.ExpirationSeconds; s != nil && (*s < shortestToken || *s > longestToken) {
			errs = append(errs, field.Invalid(path.Index(i).Child("expirationSeconds"), *s,
				"must be at least 10 minutes, and at most 2^32 seconds"))
		}
	}
	return errs
}

// oneOf refuses a value that is not one of those.
func oneOf[T ~string](path *field.Path, value T, valid ...T) field.ErrorList {
	if slices.Contains(valid, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, valid)}
}
