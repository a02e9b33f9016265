package objects

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podrun.io/podrun/internal/manifest/validate"
	"podrun.io/podrun/internal/pod"
)

// PersistentVolume validates a PersistentVolume by the API server's rules for its creation, and by what podrun can make
// of it.
func PersistentVolume(v *v1.PersistentVolume) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(
		&v.ObjectMeta, false, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	spec, at := &v.Spec, field.NewPath("spec")
	errs = append(errs, accessModes(spec, at.Child("accessModes"))...)
	errs = append(errs, capacity(spec.Capacity, at.Child("capacity"))...)
	if p := spec.PersistentVolumeReclaimPolicy; p != "" {
		errs = append(errs, oneOf(at.Child("persistentVolumeReclaimPolicy"), p,
			v1.PersistentVolumeReclaimDelete, v1.PersistentVolumeReclaimRecycle, v1.PersistentVolumeReclaimRetain)...)
	}
	if m := spec.VolumeMode; m != nil {
		errs = append(errs, oneOf(at.Child("volumeMode"), *m,
			v1.PersistentVolumeBlock, v1.PersistentVolumeFilesystem)...)
	}
	if m := spec.VolumeMode; m != nil && *m == v1.PersistentVolumeBlock && spec.CSI == nil {
		errs = append(errs, field.Forbidden(at.Child("volumeMode"), "only volumes of csi can be block devices"))
	}
	if name := spec.StorageClassName; name != "" {
		for _, why := range validation.IsDNS1123Subdomain(name) {
			errs = append(errs, field.Invalid(at.Child("storageClassName"), name, why))
		}
	}
	if ref := spec.ClaimRef; ref != nil {
		errs = append(errs, reference(ref.Namespace, ref.Name, at.Child("claimRef"))...)
	}
	if spec.CSI == nil && len(spec.MountOptions) > 0 {
		errs = append(errs, field.Forbidden(at.Child("mountOptions"), "only volumes of csi have them"))
	}
	return append(errs, source(&spec.PersistentVolumeSource, at)...)
}

// source validates the first kind of volume that is given, and refuses others.
func source(s *v1.PersistentVolumeSource, path *field.Path) field.ErrorList {
	kinds := validate.VolumeKinds{Path: path}
	kinds.Judge("hostPath", s.HostPath != nil,
		func(at *field.Path) field.ErrorList { return validate.HostPath(s.HostPath, at) })
	kinds.Judge("nfs", s.NFS != nil, func(at *field.Path) field.ErrorList { return validate.NFS(s.NFS, at) })
	kinds.Judge("csi", s.CSI != nil, func(at *field.Path) field.ErrorList { return csi(s.CSI, at) })
	if kinds.Given == 0 {
		return field.ErrorList{field.Required(path, "must specify a volume type")}
	}
	return kinds.Errors
}

func csi(s *v1.CSIPersistentVolumeSource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.Driver == "" {
		errs = append(errs, field.Required(path.Child("driver"), ""))
	} else {
		for _, why := range pod.CSIDriverName(s.Driver) {
			errs = append(errs, field.Invalid(path.Child("driver"), s.Driver, why))
		}
	}
	if s.VolumeHandle == "" {
		errs = append(errs, field.Required(path.Child("volumeHandle"), ""))
	}
	if ref := s.NodeStageSecretRef; ref != nil {
		errs = append(errs, reference(ref.Namespace, ref.Name, path.Child("nodeStageSecretRef"))...)
	}
	if ref := s.NodePublishSecretRef; ref != nil {
		errs = append(errs, reference(ref.Namespace, ref.Name, path.Child("nodePublishSecretRef"))...)
	}
	return errs
}

// reference validates what names an object in a namespace. Kubernetes accepts a claimRef that names none.
func reference(namespace, name string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	if namespace == "" {
		errs = append(errs, field.Required(path.Child("namespace"), ""))
	}
	return errs
}

func accessModes(s *v1.PersistentVolumeSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(s.AccessModes) == 0 {
		errs = append(errs, field.Required(path, ""))
	}
	for i, mode := range s.AccessModes {
		errs = append(errs, oneOf(path.Index(i), mode,
			v1.ReadOnlyMany, v1.ReadWriteMany, v1.ReadWriteOnce, v1.ReadWriteOncePod)...)
	}
	if slices.Contains(s.AccessModes, v1.ReadWriteOncePod) {
		other := func(m v1.PersistentVolumeAccessMode) bool { return m != v1.ReadWriteOncePod }
		if slices.ContainsFunc(s.AccessModes, other) {
			errs = append(errs, field.Forbidden(path, "may not use ReadWriteOncePod with other access modes"))
		}
		if s.CSI == nil {
			errs = append(errs, field.Forbidden(path, "only volumes of csi can be ReadWriteOncePod"))
		}
	}
	return errs
}

func capacity(c v1.ResourceList, path *field.Path) field.ErrorList {
	size, given := c[v1.ResourceStorage]
	if !given || len(c) > 1 {
		return field.ErrorList{field.Required(path.Key(string(v1.ResourceStorage)), "must be given, and nothing else")}
	}
	if size.Sign() <= 0 {
		return field.ErrorList{
			field.Invalid(path.Key(string(v1.ResourceStorage)), size.String(), "must be greater than zero"),
		}
	}
	return nil
}
