// Package contents says what the volumes and environment variables of a pod are, for podrun describe and the page of a
// pod. Values of Secrets are not in it. Texts are as the manifest has them: whoever prints them makes them safe.
//
// Begin reading at Volumes and Environment.
package contents

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// Field is a field and its value, each as text.
type Field struct{ Name, Value string }

// Volume is a volume of a pod.
type Volume struct {
	Name string
	// Fields are its type and the fields of that, as they are in the manifest, with capital letters.
	Fields []Field
	// Mounts say where containers have it, as CONTAINER:PATH with what else there is to say of it.
	Mounts []string
}

// Volumes returns the volumes of a pod, in the order of its manifest.
func Volumes(p *v1.Pod) (out []Volume) {
	for _, v := range p.Spec.Volumes {
		of := Volume{Name: v.Name}
		kinds := fieldsOf(v.VolumeSource)
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			of.Fields = append(of.Fields, Field{"Type", kind})
			fields := fieldsOf(kinds[kind])
			for _, name := range slices.Sorted(maps.Keys(fields)) {
				title := capital(name)
				if title == "Type" { // a host path's
					title = capital(kind) + title
				}
				of.Fields = append(of.Fields, Field{title, valueText(name, fields[name])})
			}
		}
		for _, c := range pod.AllContainers(p) {
			of.Mounts = append(of.Mounts, mounts(c, v.Name)...)
		}
		out = append(out, of)
	}
	return out
}

// mounts says where a container has a volume.
func mounts(c *v1.Container, volume string) (out []string) {
	for _, m := range c.VolumeMounts {
		if m.Name == volume {
			out = append(out, c.Name+":"+m.MountPath+" ("+How(m)+")")
		}
	}
	for _, d := range c.VolumeDevices {
		if d.Name == volume {
			out = append(out, c.Name+":"+d.DevicePath+" (device)")
		}
	}
	return out
}

// How says how a volume is mounted: rw or ro, and which path of it.
func How(m v1.VolumeMount) string {
	how := "rw"
	if m.ReadOnly {
		how = "ro"
	}
	if path := m.SubPath + m.SubPathExpr; path != "" {
		how += fmt.Sprintf(",path=%q", path)
	}
	return how
}

// Environment returns the environment variables of a container: from are the objects that it has whole, all the
// others with their values or where these come from.
func Environment(c *v1.Container) (from, all []Field) {
	for _, one := range c.EnvFrom {
		name, kind, optional := "", "", (*bool)(nil)
		switch {
		case one.ConfigMapRef != nil:
			name, kind, optional = one.ConfigMapRef.Name, "ConfigMap", one.ConfigMapRef.Optional
		case one.SecretRef != nil:
			name, kind, optional = one.SecretRef.Name, "Secret", one.SecretRef.Optional
		}
		if one.Prefix != "" {
			kind += " with prefix '" + one.Prefix + "'"
		}
		from = append(from, Field{name, kind + orOptional(optional)})
	}
	for _, variable := range c.Env {
		value := variable.Value
		if value == "" {
			value = `""`
		}
		if variable.ValueFrom != nil {
			value = origin(variable.ValueFrom)
		}
		all = append(all, Field{variable.Name, value})
	}
	return from, all
}

// origin says where the value of an environment variable comes from.
func origin(from *v1.EnvVarSource) string {
	switch {
	case from.SecretKeyRef != nil:
		return fmt.Sprintf("<set to the key '%s' in secret '%s'>", from.SecretKeyRef.Key, from.SecretKeyRef.Name) +
			orOptional(from.SecretKeyRef.Optional)
	case from.ConfigMapKeyRef != nil:
		return fmt.Sprintf("<set to the key '%s' of config map '%s'>", from.ConfigMapKeyRef.Key, from.ConfigMapKeyRef.Name) +
			orOptional(from.ConfigMapKeyRef.Optional)
	case from.FieldRef != nil:
		return fmt.Sprintf("<set to %s of the pod>", from.FieldRef.FieldPath)
	case from.ResourceFieldRef != nil:
		text := "<set to " + from.ResourceFieldRef.Resource
		if name := from.ResourceFieldRef.ContainerName; name != "" {
			text += fmt.Sprintf(" of container '%s'", name)
		}
		if by := from.ResourceFieldRef.Divisor; !by.IsZero() {
			text += " in units of " + by.String()
		}
		return text + ">"
	case from.FileKeyRef != nil:
		return fmt.Sprintf("<set to the key '%s' in file '%s' of volume '%s'>", from.FileKeyRef.Key, from.FileKeyRef.Path,
			from.FileKeyRef.VolumeName) + orOptional(from.FileKeyRef.Optional)
	}
	return "<unknown>"
}

func orOptional(optional *bool) string {
	if optional != nil && *optional {
		return " (optional)"
	}
	return ""
}

// capital returns the name of a field with a capital letter.
func capital(name string) string { return strings.ToUpper(name[:1]) + name[1:] }

// fieldsOf returns the fields of an object by their JSON names.
func fieldsOf(object any) map[string]any {
	fields := map[string]any{}
	text, err := json.Marshal(object)
	if err != nil || json.Unmarshal(text, &fields) != nil { // cannot happen with API objects
		return nil
	}
	return fields
}

// valueText returns the value of a field, as of JSON, as text: modes in octal, as they are written.
func valueText(name string, value any) string {
	switch value := value.(type) {
	case string:
		return value
	case float64:
		if name == "mode" || name == "defaultMode" {
			return fmt.Sprintf("%#o", int(value))
		}
		return strconv.FormatFloat(value, 'f', -1, 64)
	case []any:
		var all []string
		for _, one := range value {
			all = append(all, valueText(name, one))
		}
		return strings.Join(all, "; ")
	case map[string]any:
		var all []string
		for _, part := range slices.Sorted(maps.Keys(value)) {
			text := valueText(part, value[part])
			switch value[part].(type) {
			case []any, map[string]any:
				text = "{" + text + "}"
			}
			all = append(all, part+": "+text)
		}
		return strings.Join(all, ", ")
	}
	return fmt.Sprint(value)
}
