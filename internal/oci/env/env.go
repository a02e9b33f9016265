// Package env resolves a container's environment: variables from the manifest, from fields of the
// pod, from ConfigMaps, Secrets and files, and references between variables.
//
// The package is pure: everything that it needs is in its input. Begin reading at [Resolve].
package env

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// Resolve returns the container's own variables, each name once: those of envFrom, then those of
// env, where a later one replaces an earlier one of the same name. A variable may refer to those
// before it, but not to the image's, as in Kubernetes. An error says what is missing, in the
// kubelet's words.
func Resolve(in pod.Inside) ([]pod.Variable, error) {
	var vars list
	files := parsed{}
	for _, from := range in.Container.EnvFrom {
		if err := vars.addAll(in, from); err != nil {
			return nil, err
		}
	}
	for _, e := range in.Container.Env {
		v, found, err := resolve(in, e, &vars, files)
		if err != nil {
			return nil, err
		}
		if found {
			vars.set(v)
		}
	}
	length := 0
	for _, v := range vars.all {
		if length += len(v.Name) + len(v.Value); length > maxTexts {
			return nil, fmt.Errorf("the variables have more than %d bytes together, which is more than a process can have",
				maxTexts)
		}
		if strings.ContainsRune(v.Value, 0) {
			return nil, fmt.Errorf("the value of variable %s has a NUL character, which no environment can hold",
				v.Name)
		}
	}
	return vars.all, nil
}

// addAll adds a variable for every key of a ConfigMap or Secret, ordered by key.
func (l *list) addAll(in pod.Inside, from v1.EnvFromSource) error {
	switch {
	case from.ConfigMapRef != nil:
		ref := from.ConfigMapRef
		m, err := configMap(in, ref.Name, ref.Optional)
		if m == nil {
			return err
		}
		for _, key := range slices.Sorted(maps.Keys(m.Data)) {
			l.set(pod.Variable{Name: from.Prefix + key, Value: m.Data[key]})
		}
	case from.SecretRef != nil:
		ref := from.SecretRef
		s, err := secret(in, ref.Name, ref.Optional)
		if s == nil {
			return err
		}
		for _, key := range slices.Sorted(maps.Keys(s.Data)) {
			l.set(pod.Variable{Name: from.Prefix + key, Value: string(s.Data[key]), Secret: true})
		}
	}
	return nil
}

// configMap returns the ConfigMap; nil without an error if it is optional and missing.
func configMap(in pod.Inside, name string, optional *bool) (*v1.ConfigMap, error) {
	m := in.Objects.ConfigMaps[pod.Key{Namespace: in.Pod.Namespace, Name: name}]
	if m == nil && !isTrue(optional) {
		return nil, fmt.Errorf("configmap %q not found", name)
	}
	return m, nil
}

func secret(in pod.Inside, name string, optional *bool) (*v1.Secret, error) {
	s := in.Objects.Secrets[pod.Key{Namespace: in.Pod.Namespace, Name: name}]
	if s == nil && !isTrue(optional) {
		return nil, fmt.Errorf("secret %q not found", name)
	}
	return s, nil
}

func isTrue(b *bool) bool { return b != nil && *b }

// resolve returns the variable with its value; found is false if its optional source is missing.
func resolve(in pod.Inside, e v1.EnvVar, before *list, files parsed) (v pod.Variable, found bool, err error) {
	v.Name = e.Name
	if e.Value != "" || e.ValueFrom == nil {
		if v.Value, v.Secret, err = before.expand(e.Value); err != nil {
			return v, false, fmt.Errorf("the value of variable %s %w", e.Name, err)
		}
		return v, true, nil
	}
	v.Value, found, err = valueFrom(in, e.ValueFrom, files)
	v.Secret = e.ValueFrom.SecretKeyRef != nil
	return v, found, err
}

func valueFrom(in pod.Inside, from *v1.EnvVarSource, files parsed) (value string, found bool, err error) {
	switch {
	case from.FieldRef != nil:
		value, err = Field(in, from.FieldRef.FieldPath)
		return value, true, err
	case from.ResourceFieldRef != nil:
		value, err = Resource(in, from.ResourceFieldRef)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		m, err := configMap(in, ref.Name, ref.Optional)
		if m == nil {
			return "", false, err
		}
		value, found = m.Data[ref.Key]
		return value, found, missing(found, ref.Optional, "ConfigMap", in.Pod.Namespace+"/"+ref.Name, ref.Key)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		s, err := secret(in, ref.Name, ref.Optional)
		if s == nil {
			return "", false, err
		}
		data, found := s.Data[ref.Key]
		return string(data), found, missing(found, ref.Optional, "Secret", in.Pod.Namespace+"/"+ref.Name, ref.Key)
	case from.FileKeyRef != nil:
		ref := from.FileKeyRef
		value, found, err = files.key(in.Files, ref)
		return value, found, err
	}
	return "", true, nil
}

func missing(found bool, optional *bool, kind, where, key string) error {
	if found || isTrue(optional) {
		return nil
	}
	return fmt.Errorf("couldn't find key %s in %s %s", key, kind, where)
}
