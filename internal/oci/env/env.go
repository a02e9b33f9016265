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
	for _, from := range in.Container.EnvFrom {
		if err := vars.addAll(in, from); err != nil {
			return nil, err
		}
	}
	for _, e := range in.Container.Env {
		v, found, err := resolve(in, e, vars)
		if err != nil {
			return nil, err
		}
		if found {
			vars.set(v)
		}
	}
	for _, v := range vars {
		if strings.ContainsRune(v.Value, 0) {
			return nil, fmt.Errorf("the value of variable %s has a NUL character, which no environment can hold",
				v.Name)
		}
	}
	return vars, nil
}

// list holds variables in the order in which they were first set.
type list []pod.Variable

func (l *list) set(v pod.Variable) {
	for i := range *l {
		if (*l)[i].Name == v.Name {
			(*l)[i] = v
			return
		}
	}
	*l = append(*l, v)
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
func resolve(in pod.Inside, e v1.EnvVar, before list) (v pod.Variable, found bool, err error) {
	v.Name = e.Name
	if e.Value != "" || e.ValueFrom == nil {
		v.Value, v.Secret = Expand(e.Value, before)
		return v, true, nil
	}
	v.Value, found, err = valueFrom(in, e.ValueFrom)
	v.Secret = e.ValueFrom.SecretKeyRef != nil
	return v, found, err
}

func valueFrom(in pod.Inside, from *v1.EnvVarSource) (value string, found bool, err error) {
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
		value, found, err = fileKey(in.Files, ref)
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

// Expand replaces $(NAME) by the variable's value and $$ by $. References to unknown variables are
// left as they are. secret reports whether the value of a variable with Secret set was inserted.
func Expand(s string, vars []pod.Variable) (out string, secret bool) {
	out = expand(s, func(name string) (string, bool) {
		v, known := get(vars, name)
		secret = secret || v.Secret
		return v.Value, known
	})
	return out, secret
}

// Unknown returns the first reference in s to an unknown variable; "" if there is none.
func Unknown(s string, vars []pod.Variable) string {
	unknown := ""
	expand(s, func(name string) (string, bool) {
		_, known := get(vars, name)
		if !known && unknown == "" {
			unknown = "$(" + name + ")"
		}
		return "", known
	})
	return unknown
}

func expand(s string, value func(name string) (string, bool)) string {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 || i == len(s)-1 {
			b.WriteString(s)
			return b.String()
		}
		b.WriteString(s[:i])
		s = s[i:]
		end := strings.IndexByte(s, ')')
		switch {
		case s[1] == '$':
			b.WriteByte('$')
			s = s[2:]
		case s[1] == '(' && end > 0:
			text, known := value(s[2:end])
			if !known {
				text = s[:end+1]
			}
			b.WriteString(text)
			s = s[end+1:]
		default:
			b.WriteByte('$')
			s = s[1:]
		}
	}
}

func get(vars []pod.Variable, name string) (pod.Variable, bool) {
	for _, v := range vars {
		if v.Name == name {
			return v, true
		}
	}
	return pod.Variable{}, false
}
