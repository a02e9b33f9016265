package validate

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podrun.io/podrun/internal/oci/env"
)

func validateEnv(env []v1.EnvVar, volumes []v1.Volume, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, e := range env {
		at := path.Index(i).Child("name")
		if e.Name == "" {
			errs = append(errs, field.Required(at, ""))
		} else {
			errs = append(errs, invalid(at, e.Name, validation.IsRelaxedEnvVarName(e.Name))...)
		}
		if strings.ContainsRune(e.Value, 0) {
			errs = append(errs,
				field.Invalid(path.Index(i).Child("value"), e.Value, "must not contain a NUL character"))
		}
		errs = append(errs, validateValueFrom(&e, volumes, path.Index(i).Child("valueFrom"))...)
	}
	return errs
}

// envFields returns the fields of a pod that can be the value of a variable.
func envFields() []string {
	return []string{"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"}
}

func validateValueFrom(e *v1.EnvVar, volumes []v1.Volume, path *field.Path) field.ErrorList {
	from := e.ValueFrom
	if from == nil {
		return nil
	}
	var errs field.ErrorList
	given := 0
	if r := from.FieldRef; r != nil {
		given++
		errs = append(errs, validateFieldRef(r, envFields(), path.Child("fieldRef"))...)
	}
	if r := from.ResourceFieldRef; r != nil {
		given++
		errs = append(errs, validateResourceRef(r, false, path.Child("resourceFieldRef"))...)
	}
	if r := from.ConfigMapKeyRef; r != nil {
		given++
		errs = append(errs, validateKeyRef(r.Name, r.Key, path.Child("configMapKeyRef"))...)
	}
	if r := from.SecretKeyRef; r != nil {
		given++
		errs = append(errs, validateKeyRef(r.Name, r.Key, path.Child("secretKeyRef"))...)
	}
	if r := from.FileKeyRef; r != nil {
		given++
		errs = append(errs, validateFileKeyRef(r, volumes, path.Child("fileKeyRef"))...)
	}
	switch {
	case given == 0:
		errs = append(errs, field.Invalid(path, "",
			"must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"))
	case e.Value != "":
		errs = append(errs, field.Invalid(path, "", "may not be specified when `value` is not empty"))
	case given > 1:
		errs = append(errs, field.Invalid(path, "", "may not have more than one field specified at a time"))
	}
	return errs
}

func objectName(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return invalid(path, name, validation.IsDNS1123Subdomain(name))
}

func validateKeyRef(name, key string, path *field.Path) field.ErrorList {
	errs := objectName(name, path.Child("name"))
	if key == "" {
		return append(errs, field.Required(path.Child("key"), ""))
	}
	return append(errs, invalid(path.Child("key"), key, validation.IsConfigMapKey(key))...)
}

func validateFileKeyRef(r *v1.FileKeySelector, volumes []v1.Volume, path *field.Path) field.ErrorList {
	errs := named(r.VolumeName, path.Child("volumeName"))
	if r.VolumeName != "" {
		errs = append(errs, invalid(path.Child("volumeName"), r.VolumeName, validation.IsDNS1123Label(r.VolumeName))...)
		at := slices.IndexFunc(volumes, func(v v1.Volume) bool { return v.Name == r.VolumeName })
		switch {
		case len(errs) > 0:
		case at < 0:
			errs = append(errs, field.NotFound(path.Child("volumeName"), r.VolumeName))
		case volumes[at].EmptyDir == nil:
			errs = append(errs, field.Invalid(path.Child("volumeName"), r.VolumeName,
				"referenced volume must be of type emptyDir"))
		}
	}
	if r.Key == "" {
		errs = append(errs, field.Required(path.Child("key"), ""))
	} else {
		errs = append(errs, invalid(path.Child("key"), r.Key, validation.IsRelaxedEnvVarName(r.Key))...)
	}
	switch {
	case r.Path == "":
		errs = append(errs, field.Required(path.Child("path"), ""))
	case hasDots(r.Path):
		errs = append(errs, field.Invalid(path.Child("path"), r.Path, "must not contain '..'"))
	case strings.HasPrefix(r.Path, ".."):
		errs = append(errs, field.Invalid(path.Child("path"), r.Path, "must not start with '..'"))
	}
	return errs
}

// otherFields returns the fields that Kubernetes accepts as the name of a field but not as the
// value of a variable.
func otherFields() []string {
	return []string{
		"metadata.annotations",
		"metadata.labels",
		"spec.restartPolicy",
		"spec.schedulerName",
		"status.phase",
		"spec.host",
	}
}

func validateFieldRef(r *v1.ObjectFieldSelector, fields []string, path *field.Path) field.ErrorList {
	if r.FieldPath == "" {
		return field.ErrorList{field.Required(path.Child("fieldPath"), "")}
	}
	if r.APIVersion != "v1" {
		return field.ErrorList{field.Invalid(path.Child("fieldPath"), r.FieldPath,
			fmt.Sprintf("error converting fieldPath: unsupported pod version: %s", r.APIVersion))}
	}
	name, key, subscripted := env.Subscript(r.FieldPath)
	if !subscripted {
		name = r.FieldPath
	}
	known := slices.Contains(envFields(), name) || slices.Contains(otherFields(), name)
	switch {
	case !known, subscripted && name != "metadata.annotations" && name != "metadata.labels":
		return field.ErrorList{field.Invalid(path.Child("fieldPath"), r.FieldPath,
			fmt.Sprintf("error converting fieldPath: field label not supported: %s", r.FieldPath))}
	case subscripted && name == "metadata.annotations":
		return invalid(path, key, validation.IsQualifiedName(strings.ToLower(key)))
	case subscripted:
		return invalid(path, key, validation.IsQualifiedName(key))
	case !slices.Contains(fields, name):
		return field.ErrorList{field.NotSupported(path.Child("fieldPath"), name, fields)}
	}
	return nil
}

func validateResourceRef(r *v1.ResourceFieldSelector, volume bool, path *field.Path) field.ErrorList {
	kind, name, _ := strings.Cut(r.Resource, ".")
	known := (kind == "limits" || kind == "requests") &&
		(name == "cpu" || name == "memory" || name == "ephemeral-storage" ||
			strings.HasPrefix(name, v1.ResourceHugePagesPrefix))
	var errs field.ErrorList
	switch {
	case volume && r.ContainerName == "":
		errs = append(errs, field.Required(path.Child("containerName"), ""))
	case r.Resource == "":
		errs = append(errs, field.Required(path.Child("resource"), ""))
	case !known:
		errs = append(errs, field.NotSupported(path.Child("resource"), r.Resource, []string{
			"limits.cpu", "limits.ephemeral-storage", "limits.memory",
			"requests.cpu", "requests.ephemeral-storage", "requests.memory",
		}))
	}
	if r.Divisor.IsZero() || !known {
		return errs
	}
	values := []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
	what := name
	switch {
	case name == "cpu":
		values = []string{"1m", "1"}
	case name == "ephemeral-storage":
		what = "local ephemeral storage"
	case name != "memory":
		what = "hugepages"
	}
	if !slices.Contains(values, r.Divisor.String()) {
		errs = append(errs, field.Invalid(path.Child("divisor"), r.Resource,
			fmt.Sprintf("only divisor's values %s are supported with the %s resource", strings.Join(values, ", "),
				what)))
	}
	return errs
}

func validateEnvFrom(all []v1.EnvFromSource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, from := range all {
		at := path.Index(i)
		if from.Prefix != "" {
			errs = append(errs,
				invalid(at.Child("prefix"), from.Prefix, validation.IsRelaxedEnvVarName(from.Prefix))...)
		}
		given := 0
		if r := from.ConfigMapRef; r != nil {
			given++
			errs = append(errs, objectName(r.Name, at.Child("configMapRef", "name"))...)
		}
		if r := from.SecretRef; r != nil {
			given++
			errs = append(errs, objectName(r.Name, at.Child("secretRef", "name"))...)
		}
		switch {
		case given == 0:
			errs = append(errs, field.Invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"))
		case given > 1:
			errs = append(errs, field.Invalid(path, "", "may not have more than one field specified at a time"))
		}
	}
	return errs
}
