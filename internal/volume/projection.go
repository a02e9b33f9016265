package volume

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/oci/env"
	"podrun.io/podrun/internal/pod"
)

// payload are the files of a filled volume, by their path in it.
type payload map[string]payloadFile

type payloadFile struct {
	data []byte
	mode uint32
}

// isFilled reports whether podrun writes the volume's files.
func isFilled(v *v1.Volume) bool {
	return v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil
}

// filledKind returns the kind of a filled volume, and whether it is kept in memory only.
func filledKind(v *v1.Volume) (kind string, memory bool) {
	switch {
	case v.ConfigMap != nil:
		return layout.KindConfigMap, false
	case v.Secret != nil:
		return layout.KindSecret, true
	case v.DownwardAPI != nil:
		return layout.KindDownwardAPI, false
	default:
		return layout.KindProjected, slices.ContainsFunc(v.Projected.Sources,
			func(s v1.VolumeProjection) bool { return s.Secret != nil })
	}
}

// fillAgain is fill for a volume that may have content already. If it has, and not all sources of
// manifests were read yet, a missing optional object is an error, so that the caller keeps the
// content.
func fillAgain(in pod.Inside, v *v1.Volume, dir string) (payload, error) {
	in.Objects.Partial = in.Objects.Partial && isWritten(dir)
	return fill(in, v)
}

// fill returns the content that a filled volume has now. The error says what is missing, in the
// kubelet's words.
func fill(in pod.Inside, v *v1.Volume) (payload, error) {
	out := payload{}
	switch {
	case v.ConfigMap != nil:
		m := v.ConfigMap
		return out, out.configMap(in, m.Name, m.Items, m.DefaultMode, m.Optional)
	case v.Secret != nil:
		s := v.Secret
		return out, out.secret(in, s.SecretName, s.Items, s.DefaultMode, s.Optional)
	case v.DownwardAPI != nil:
		return out, out.downward(in, v.DownwardAPI.Items, v.DownwardAPI.DefaultMode)
	}
	mode := v.Projected.DefaultMode
	var errs []error
	for _, s := range v.Projected.Sources {
		switch {
		case s.ConfigMap != nil:
			errs = append(errs, out.configMap(in, s.ConfigMap.Name, s.ConfigMap.Items, mode, s.ConfigMap.Optional))
		case s.Secret != nil:
			errs = append(errs, out.secret(in, s.Secret.Name, s.Secret.Items, mode, s.Secret.Optional))
		case s.DownwardAPI != nil:
			errs = append(errs, out.downward(in, s.DownwardAPI.Items, mode))
		default:
			errs = append(errs, errors.New("a projected source is of a kind that is not supported"))
		}
	}
	return out, errors.Join(errs...)
}

func (p payload) configMap(in pod.Inside, name string, items []v1.KeyToPath, mode *int32, optional *bool) error {
	m := in.Objects.ConfigMaps[pod.Key{Namespace: in.Pod.Namespace, Name: name}]
	if m == nil {
		return absent(in, "configmap", name, optional)
	}
	data := map[string][]byte{}
	for key, value := range m.Data {
		data[key] = []byte(value)
	}
	maps.Copy(data, m.BinaryData)
	return p.keys("configmap", data, items, mode, optional)
}

func (p payload) secret(in pod.Inside, name string, items []v1.KeyToPath, mode *int32, optional *bool) error {
	s := in.Objects.Secrets[pod.Key{Namespace: in.Pod.Namespace, Name: name}]
	if s == nil {
		return absent(in, "secret", name, optional)
	}
	return p.keys("secret", s.Data, items, mode, optional)
}

// absentError reports a missing object, which may exist later.
type absentError struct{ kind, name string }

func (e *absentError) Error() string { return fmt.Sprintf("%s %q not found", e.kind, e.name) }

func absent(in pod.Inside, kind, name string, optional *bool) error {
	if optional != nil && *optional && !in.Objects.Partial {
		return nil
	}
	return &absentError{kind, name}
}

// keys adds the keys that items name, or all keys if there are no items.
func (p payload) keys(kind string, data map[string][]byte, items []v1.KeyToPath, mode *int32, optional *bool) error {
	if len(items) == 0 {
		for key, value := range data {
			p[key] = payloadFile{value, modeOf(nil, mode)}
		}
		return nil
	}
	for _, item := range items {
		value, found := data[item.Key]
		if !found {
			if optional != nil && *optional {
				continue
			}
			return fmt.Errorf("%s references non-existent config key: %s", kind, item.Key)
		}
		p[item.Path] = payloadFile{value, modeOf(item.Mode, mode)}
	}
	return nil
}

func (p payload) downward(in pod.Inside, items []v1.DownwardAPIVolumeFile, mode *int32) error {
	for _, item := range items {
		var value string
		var err error
		switch {
		case item.FieldRef != nil:
			value, err = env.Field(in, item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			value, err = env.Resource(in, item.ResourceFieldRef)
		}
		if err != nil {
			return err
		}
		p[item.Path] = payloadFile{[]byte(value), modeOf(item.Mode, mode)}
	}
	return nil
}

const defaultFileMode = 0o644

func modeOf(own, common *int32) uint32 {
	switch {
	case own != nil:
		return uint32(*own) & 0o777
	case common != nil:
		return uint32(*common) & 0o777
	}
	return defaultFileMode
}
