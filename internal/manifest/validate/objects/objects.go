// Package objects validates the objects beside the pods of a manifest, ConfigMaps, Secrets, CSIDrivers and
// PersistentVolumes, by Kubernetes' rules. It reads none and gives none a default; package validate validates pods.
// Begin reading at ConfigMap.
package objects

import (
	"encoding/json"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxObject is the maximum size of the data of a ConfigMap or a Secret, in bytes.
const maxObject = v1.MaxSecretSize

// ConfigMap validates a ConfigMap by the API server's rules for its creation.
func ConfigMap(m *v1.ConfigMap) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(
		&m.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	size := 0
	for _, key := range slices.Sorted(maps.Keys(m.Data)) {
		errs = append(errs, configKey(field.NewPath("data").Key(key), key)...)
		if _, twice := m.BinaryData[key]; twice {
			errs = append(errs, field.Invalid(field.NewPath("data").Key(key), key,
				"duplicate of key present in binaryData"))
		}
		size += len(m.Data[key])
	}
	for _, key := range slices.Sorted(maps.Keys(m.BinaryData)) {
		errs = append(errs, configKey(field.NewPath("binaryData").Key(key), key)...)
		size += len(m.BinaryData[key])
	}
	if size > maxObject {
		errs = append(errs, field.TooLong(field.NewPath(""), "", maxObject))
	}
	return errs
}

func configKey(path *field.Path, key string) field.ErrorList {
	var errs field.ErrorList
	for _, message := range validation.IsConfigMapKey(key) {
		errs = append(errs, field.Invalid(path, key, message))
	}
	return errs
}

// Secret validates a Secret by the API server's rules for its creation. Its errors contain no value
// of the Secret.
func Secret(s *v1.Secret) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(
		&s.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	path := field.NewPath("data")
	size := 0
	for _, key := range slices.Sorted(maps.Keys(s.Data)) {
		errs = append(errs, configKey(path.Key(key), key)...)
		size += len(s.Data[key])
	}
	if size > maxObject {
		errs = append(errs, field.TooLong(path, "", maxObject))
	}
	for _, key := range secretKeys()[s.Type] {
		if _, found := s.Data[key]; !found {
			errs = append(errs, field.Required(path.Key(key), ""))
		}
	}
	if s.Type == v1.SecretTypeBasicAuth &&
		s.Data[v1.BasicAuthUsernameKey] == nil && s.Data[v1.BasicAuthPasswordKey] == nil {
		errs = append(errs,
			field.Required(path.Key(v1.BasicAuthUsernameKey), ""),
			field.Required(path.Key(v1.BasicAuthPasswordKey), ""))
	}
	for _, key := range []string{v1.DockerConfigKey, v1.DockerConfigJsonKey} {
		if text, found := s.Data[key]; found && slices.Contains(secretKeys()[s.Type], key) && !json.Valid(text) {
			errs = append(errs, field.Invalid(path.Key(key), "<secret contents redacted>", "is not JSON"))
		}
	}
	if s.Type == v1.SecretTypeServiceAccountToken && s.Annotations[v1.ServiceAccountNameKey] == "" {
		errs = append(errs, field.Required(field.NewPath("metadata", "annotations").Key(v1.ServiceAccountNameKey), ""))
	}
	return errs
}

// secretKeys returns the required keys by type of Secret.
func secretKeys() map[v1.SecretType][]string {
	return map[v1.SecretType][]string{
		v1.SecretTypeDockercfg:        {v1.DockerConfigKey},
		v1.SecretTypeDockerConfigJson: {v1.DockerConfigJsonKey},
		v1.SecretTypeSSHAuth:          {v1.SSHAuthPrivateKey},
		v1.SecretTypeTLS:              {v1.TLSCertKey, v1.TLSPrivateKeyKey},
	}
}
