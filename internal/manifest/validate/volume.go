package validate

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podrun.io/podrun/internal/pod"
)

// validateVolumes validates the volumes of a pod and returns their names, which volume mounts may
// use.
func validateVolumes(volumes []v1.Volume, path *field.Path) (sets.Set[string], field.ErrorList) {
	var errs field.ErrorList
	names := sets.New[string]()
	for i := range volumes {
		at, name := path.Index(i), volumes[i].Name
		switch {
		case name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		case names.Has(name):
			errs = append(errs, field.Duplicate(at.Child("name"), name))
		default:
			errs = append(errs, invalid(at.Child("name"), name, validation.IsDNS1123Label(name))...)
		}
		names.Insert(name)
		errs = append(errs, validateSource(&volumes[i].VolumeSource, at)...)
	}
	return names, errs
}

// validateSource validates the first volume source that is set, in Kubernetes' order, and refuses
// the others.
func validateSource(s *v1.VolumeSource, path *field.Path) field.ErrorList {
	kinds := VolumeKinds{Path: path}
	judge := kinds.Judge
	judge("emptyDir", s.EmptyDir != nil,
		func(at *field.Path) field.ErrorList { return validateEmptyDir(s.EmptyDir, at) })
	judge("hostPath", s.HostPath != nil,
		func(at *field.Path) field.ErrorList { return HostPath(s.HostPath, at) })
	judge("secret", s.Secret != nil, func(at *field.Path) field.ErrorList {
		return slices.Concat(named(s.Secret.SecretName, at.Child("secretName")),
			validateMode(s.Secret.DefaultMode, at.Child("defaultMode")),
			validateItems(s.Secret.Items, at.Child("items")))
	})
	judge("nfs", s.NFS != nil, func(at *field.Path) field.ErrorList { return NFS(s.NFS, at) })
	judge("persistentVolumeClaim", s.PersistentVolumeClaim != nil, func(at *field.Path) field.ErrorList {
		return validateClaim(s.PersistentVolumeClaim, at)
	})
	judge("downwardAPI", s.DownwardAPI != nil, func(at *field.Path) field.ErrorList {
		return append(validateMode(s.DownwardAPI.DefaultMode, at.Child("defaultMode")),
			validateDownward(s.DownwardAPI.Items, at)...)
	})
	judge("configMap", s.ConfigMap != nil, func(at *field.Path) field.ErrorList {
		return slices.Concat(named(s.ConfigMap.Name, at.Child("name")),
			validateMode(s.ConfigMap.DefaultMode, at.Child("defaultMode")),
			validateItems(s.ConfigMap.Items, at.Child("items")))
	})
	judge("projected", s.Projected != nil, func(at *field.Path) field.ErrorList {
		return append(validateMode(s.Projected.DefaultMode, at.Child("defaultMode")),
			validateProjections(s.Projected.Sources, at)...)
	})
	kinds.Errors = append(kinds.Errors, validateCount(s, path)...)
	judge("csi", s.CSI != nil, func(at *field.Path) field.ErrorList { return validateCSI(s.CSI, at) })
	judge("image", s.Image != nil, func(at *field.Path) field.ErrorList {
		errs := named(s.Image.Reference, at.Child("reference"))
		if strings.TrimSpace(s.Image.Reference) != s.Image.Reference {
			errs = append(errs,
				field.Invalid(at.Child("reference"), s.Image.Reference, "must not have leading or trailing whitespace"))
		}
		return append(errs,
			supported(s.Image.PullPolicy, at.Child("pullPolicy"), v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)...)
	})
	return kinds.Errors
}

// VolumeKinds validates the first kind of a volume that is given, and refuses others.
type VolumeKinds struct {
	Path   *field.Path
	Errors field.ErrorList
	// Given is how many there are.
	Given int
}

// Judge validates a kind, if it is given.
func (k *VolumeKinds) Judge(name string, is bool, validate func(*field.Path) field.ErrorList) {
	if !is {
		return
	}
	if k.Given++; k.Given > 1 {
		k.Errors = append(k.Errors, field.Forbidden(k.Path.Child(name), "may not specify more than 1 volume type"))
		return
	}
	k.Errors = append(k.Errors, validate(k.Path.Child(name))...)
}

// validateCount refuses more files than podrun writes into a volume. How large they are is known when
// the ConfigMap or Secret is.
func validateCount(s *v1.VolumeSource, path *field.Path) field.ErrorList {
	const most = pod.MaxFilled / pod.FileBlock
	given := 0
	switch {
	case s.Secret != nil:
		given, path = len(s.Secret.Items), path.Child("secret", "items")
	case s.ConfigMap != nil:
		given, path = len(s.ConfigMap.Items), path.Child("configMap", "items")
	case s.DownwardAPI != nil:
		given, path = len(s.DownwardAPI.Items), path.Child("downwardAPI", "items")
	case s.Projected != nil:
		path = path.Child("projected", "sources")
		for _, from := range s.Projected.Sources {
			given++
			switch {
			case from.Secret != nil:
				given += max(1, len(from.Secret.Items)) - 1
			case from.ConfigMap != nil:
				given += max(1, len(from.ConfigMap.Items)) - 1
			case from.DownwardAPI != nil:
				given += max(1, len(from.DownwardAPI.Items)) - 1
			}
		}
	}
	if given > most {
		return field.ErrorList{field.TooMany(path, given, most)}
	}
	return nil
}

func named(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return nil
}

// NFS validates an NFS volume. It also checks that the server has the form of a host name
// or address, because it is an argument of the machine's mount command.
func NFS(n *v1.NFSVolumeSource, path *field.Path) field.ErrorList {
	errs := slices.Concat(named(n.Server, path.Child("server")), named(n.Path, path.Child("path")))
	if n.Server != "" {
		if _, err := pod.ServerName(n.Server); err != nil {
			errs = append(errs, field.Invalid(path.Child("server"), n.Server, err.Error()))
		}
	}
	switch {
	case n.Path == "":
	case !strings.HasPrefix(n.Path, "/"):
		errs = append(errs, field.Invalid(path.Child("path"), n.Path, "must be an absolute path"))
	case strings.ContainsFunc(n.Path, unicode.IsControl):
		errs = append(errs, field.Invalid(path.Child("path"), n.Path, "must not contain control characters"))
	}
	return errs
}

func validateCSI(s *v1.CSIVolumeSource, path *field.Path) field.ErrorList {
	errs := named(s.Driver, path.Child("driver"))
	if s.Driver != "" {
		errs = invalid(path.Child("driver"), s.Driver, pod.CSIDriverName(s.Driver))
	}
	if ref := s.NodePublishSecretRef; ref != nil {
		errs = append(errs, named(ref.Name, path.Child("nodePublishSecretRef", "name"))...)
	}
	return errs
}

func validateEmptyDir(e *v1.EmptyDirVolumeSource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	huge := strings.HasPrefix(string(e.Medium), string(v1.StorageMediumHugePages))
	if e.Medium != v1.StorageMediumDefault && e.Medium != v1.StorageMediumMemory && !huge {
		errs = append(errs, field.NotSupported(path.Child("medium"), e.Medium,
			[]v1.StorageMedium{v1.StorageMediumMemory, v1.StorageMediumHugePages}))
	}
	if e.SizeLimit != nil && e.SizeLimit.Sign() < 0 {
		errs = append(errs,
			field.Forbidden(path.Child("sizeLimit"), "SizeLimit field must be a valid resource quantity"))
	}
	return errs
}

// HostPath validates a hostPath volume.
func HostPath(h *v1.HostPathVolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if h.Path == "" {
		errs = append(errs, field.Required(at.Child("path"), ""))
	}
	if hasDots(h.Path) {
		errs = append(errs, field.Invalid(at.Child("path"), h.Path, "must not contain '..'"))
	}
	if h.Type != nil && *h.Type != v1.HostPathUnset {
		errs = append(errs, supported(*h.Type, at.Child("type"),
			v1.HostPathBlockDev, v1.HostPathCharDev,
			v1.HostPathDirectory, v1.HostPathDirectoryOrCreate,
			v1.HostPathFile, v1.HostPathFileOrCreate, v1.HostPathSocket)...)
	}
	return errs
}

// validateClaim validates a persistentVolumeClaim volume. The claim name must also be valid as the
// name of a directory.
func validateClaim(c *v1.PersistentVolumeClaimVolumeSource, path *field.Path) field.ErrorList {
	if c.ClaimName == "" {
		return field.ErrorList{field.Required(path.Child("claimName"), "")}
	}
	return invalid(path.Child("claimName"), c.ClaimName, validation.IsDNS1123Subdomain(c.ClaimName))
}

func hasDots(path string) bool { return slices.Contains(strings.Split(path, "/"), "..") }

// validateLocalPath validates a path that must not leave the directory that it is relative to.
func validateLocalPath(path string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if strings.HasPrefix(path, "/") {
		errs = append(errs, field.Invalid(at, path, "must be a relative path"))
	}
	if hasDots(path) {
		errs = append(errs, field.Invalid(at, path, "must not contain '..'"))
	}
	return errs
}

// validateFilePath validates the path of a file that podrun writes into a volume.
func validateFilePath(path string, at *field.Path) field.ErrorList {
	if path == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := validateLocalPath(path, at)
	if strings.HasPrefix(path, "..") && !strings.HasPrefix(path, "../") && path != ".." {
		errs = append(errs, field.Invalid(at, path, "must not start with '..'"))
	}
	return errs
}

func validateMode(mode *int32, path *field.Path) field.ErrorList {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		return field.ErrorList{field.Invalid(path, *mode,
			"must be a number between 0 and 0777 (octal), both inclusive")}
	}
	return nil
}

func validateItems(items []v1.KeyToPath, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, item := range items {
		at := path.Index(i)
		errs = append(errs, named(item.Key, at.Child("key"))...)
		errs = append(errs, validateFilePath(item.Path, at.Child("path"))...)
		errs = append(errs, validateMode(item.Mode, at.Child("mode"))...)
	}
	return errs
}

func validateDownward(items []v1.DownwardAPIVolumeFile, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range items {
		errs = append(errs, validateDownwardFile(&items[i], path.Child("items").Index(i))...)
	}
	return errs
}

// volumeFields returns the fields of a pod that a downwardAPI volume can contain.
func volumeFields() []string {
	return []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"}
}

func validateDownwardFile(f *v1.DownwardAPIVolumeFile, path *field.Path) field.ErrorList {
	errs := append(validateFilePath(f.Path, path.Child("path")), validateMode(f.Mode, path.Child("mode"))...)
	switch {
	case f.FieldRef != nil:
		errs = append(errs, validateFieldRef(f.FieldRef, volumeFields(), path.Child("fieldRef"))...)
		if f.ResourceFieldRef != nil {
			errs = append(errs,
				field.Invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously"))
		}
	case f.ResourceFieldRef != nil:
		errs = append(errs, validateResourceRef(f.ResourceFieldRef, true, path.Child("resourceFieldRef"))...)
	default:
		errs = append(errs, field.Required(path, "one of fieldRef and resourceFieldRef is required"))
	}
	return errs
}

func validateProjections(sources []v1.VolumeProjection, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	taken := sets.New[string]()
	for i := range sources {
		s, at := &sources[i], path.Child("sources").Index(i)
		given := 0
		once := func(name string) bool {
			if given++; given > 1 {
				errs = append(errs, field.Forbidden(at.Child(name), "may not specify more than 1 volume type"))
			}
			return given == 1
		}
		take := func(file, what string) {
			if file != "" && taken.Has(file) {
				errs = append(errs, field.Invalid(path, what, "conflicting duplicate paths"))
			}
			taken.Insert(file)
		}
		if s.Secret != nil && once("secret") {
			errs = append(errs, slices.Concat(named(s.Secret.Name, at.Child("secret", "name")),
				validateItems(s.Secret.Items, at.Child("secret", "items")))...)
			for _, item := range s.Secret.Items {
				take(item.Path, s.Secret.Name)
			}
		}
		if s.ConfigMap != nil && once("configMap") {
			errs = append(errs, slices.Concat(named(s.ConfigMap.Name, at.Child("configMap", "name")),
				validateItems(s.ConfigMap.Items, at.Child("configMap", "items")))...)
			for _, item := range s.ConfigMap.Items {
				take(item.Path, s.ConfigMap.Name)
			}
		}
		if s.DownwardAPI != nil && once("downwardAPI") {
			errs = append(errs, validateDownward(s.DownwardAPI.Items, at.Child("downwardAPI"))...)
			for _, item := range s.DownwardAPI.Items {
				take(item.Path, item.Path)
			}
		}
	}
	return errs
}

func validateMounts(c *v1.Container, volumes sets.Set[string], path *field.Path) field.ErrorList {
	var errs field.ErrorList
	places := sets.New[string]()
	for i, m := range c.VolumeMounts {
		at := path.Index(i)
		switch {
		case m.Name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		case !volumes.Has(m.Name):
			errs = append(errs, field.NotFound(at.Child("name"), m.Name))
		}
		if m.MountPath == "" {
			errs = append(errs, field.Required(at.Child("mountPath"), ""))
		}
		if places.Has(m.MountPath) {
			errs = append(errs, field.Invalid(at.Child("mountPath"), m.MountPath, "must be unique"))
		}
		places.Insert(m.MountPath)
		errs = append(errs, validateMount(c, &m, at)...)
	}
	return errs
}

func validateMount(c *v1.Container, m *v1.VolumeMount, path *field.Path) field.ErrorList {
	errs := validateLocalPath(m.SubPath, path.Child("subPath"))
	if m.SubPathExpr != "" {
		if m.SubPath != "" {
			errs = append(errs, field.Invalid(path.Child("subPathExpr"), m.SubPathExpr,
				"subPathExpr and subPath are mutually exclusive"))
		}
		errs = append(errs, validateLocalPath(m.SubPathExpr, path.Child("subPathExpr"))...)
	}
	if p := m.MountPropagation; p != nil {
		at := path.Child("mountPropagation")
		privileged := c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
		errs = append(errs, supported(*p, at, v1.MountPropagationBidirectional, v1.MountPropagationHostToContainer,
			v1.MountPropagationNone)...)
		if *p == v1.MountPropagationBidirectional && !privileged {
			errs = append(errs,
				field.Forbidden(at, "Bidirectional mount propagation is available only to privileged containers"))
		}
	}
	if r := m.RecursiveReadOnly; r != nil && *r != v1.RecursiveReadOnlyDisabled {
		at := path.Child("recursiveReadOnly")
		bad := supported(*r, at, v1.RecursiveReadOnlyDisabled, v1.RecursiveReadOnlyEnabled,
			v1.RecursiveReadOnlyIfPossible)
		errs = append(errs, bad...)
		if len(bad) == 0 && !m.ReadOnly {
			errs = append(errs, field.Forbidden(at, "may only be specified when readOnly is true"))
		}
		if len(bad) == 0 && m.MountPropagation != nil && *m.MountPropagation != v1.MountPropagationNone {
			errs = append(errs, field.Forbidden(at, fmt.Sprintf(
				"may only be specified when mountPropagation is %s or not specified", v1.MountPropagationNone)))
		}
	}
	return errs
}
