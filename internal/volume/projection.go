package volume

import (
	"errors"
	"fmt"
	"iter"
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/oci/env"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/volume/filled"
)

// isFilled reports whether podrun writes the volume's files.
func isFilled(v *v1.Volume) bool {
	is, _ := pod.Filled(v)
	return is
}

// filledVolumes returns the volumes of a pod whose files podrun writes, with their directories.
func filledVolumes(dirs layout.Dirs, p *v1.Pod) iter.Seq2[*v1.Volume, string] {
	return func(yield func(*v1.Volume, string) bool) {
		for i := range p.Spec.Volumes {
			v := &p.Spec.Volumes[i]
			if !isFilled(v) || !isComponent(v.Name) {
				continue
			}
			kind, _ := filledKind(v)
			if !yield(v, dirs.Revision(p.UID).Volume(kind, v.Name)) {
				return
			}
		}
	}
}

// content is the files of a volume as they are put together.
type content struct {
	files filled.Files
	dirs  map[string]bool
	// space is what the files take, in bytes, as pod.MaxFilled counts them.
	space int64
}

// errFull reports that a volume has more than pod.MaxFilled.
var errFull = fmt.Errorf("its files take more than %d MiB, the most that podrun writes into a volume "+
	"(each file and directory counts as whole blocks of %d KiB)", pod.MaxFilled>>20, pod.FileBlock>>10)

// add adds a file. A file that replaces another one counts too, so that the work is limited as well
// as the result.
func (c *content) add(name string, data []byte, mode uint32) error {
	blocks := max(1, (int64(len(data))+pod.FileBlock-1)/pod.FileBlock)
	c.space += blocks * pod.FileBlock
	name = path.Clean(name)
	if strings.HasPrefix(name, "..") { // names that the volume's own links have
		return fmt.Errorf("file %q: its path must not begin with '..'", name)
	}
	for i := 0; i < len(name) && c.space <= pod.MaxFilled; i++ {
		if name[i] == '/' && !c.dirs[name[:i]] {
			c.dirs[name[:i]] = true
			c.space += pod.FileBlock
		}
	}
	if c.space > pod.MaxFilled {
		return errFull
	}
	c.files[name] = filled.File{Data: data, Mode: mode}
	return nil
}

// filledKind returns the kind of a filled volume, and whether it is kept in memory only.
func filledKind(v *v1.Volume) (kind string, memory bool) {
	_, memory = pod.Filled(v)
	switch {
	case v.ConfigMap != nil:
		return layout.KindConfigMap, memory
	case v.Secret != nil:
		return layout.KindSecret, memory
	case v.DownwardAPI != nil:
		return layout.KindDownwardAPI, memory
	default:
		return layout.KindProjected, memory
	}
}

// fillAgain is fill for a volume that may have content already. If it has, and not all sources of
// manifests were read yet, a missing optional object is an error, so that the caller keeps the
// content.
func fillAgain(in pod.Inside, v *v1.Volume, dir string) (*content, error) {
	in.Objects.Partial = in.Objects.Partial && filled.IsWritten(dir)
	return fill(in, v)
}

// fill returns the content that a filled volume has now. The error is errFull or says what is
// missing, in the kubelet's words.
func fill(in pod.Inside, v *v1.Volume) (*content, error) {
	out := &content{files: filled.Files{}, dirs: map[string]bool{}}
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
		var err error
		switch {
		case s.ConfigMap != nil:
			err = out.configMap(in, s.ConfigMap.Name, s.ConfigMap.Items, mode, s.ConfigMap.Optional)
		case s.Secret != nil:
			err = out.secret(in, s.Secret.Name, s.Secret.Items, mode, s.Secret.Optional)
		case s.DownwardAPI != nil:
			err = out.downward(in, s.DownwardAPI.Items, mode)
		default:
			err = errors.New("a projected source is of a kind that is not supported")
		}
		if errors.Is(err, errFull) {
			return out, err
		}
		errs = append(errs, err)
	}
	return out, errors.Join(errs...)
}

func (c *content) configMap(in pod.Inside, name string, items []v1.KeyToPath, mode *int32, optional *bool) error {
	m := in.Objects.ConfigMaps[pod.Key{Namespace: in.Pod.Namespace, Name: name}]
	if m == nil {
		return absent(in, "configmap", name, optional)
	}
	return c.keys("configmap", values{m.Data, m.BinaryData}, items, mode, optional)
}

func (c *content) secret(in pod.Inside, name string, items []v1.KeyToPath, mode *int32, optional *bool) error {
	s := in.Objects.Secrets[pod.Key{Namespace: in.Pod.Namespace, Name: name}]
	if s == nil {
		return absent(in, "secret", name, optional)
	}
	return c.keys("secret", values{nil, s.Data}, items, mode, optional)
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

// values are those of a ConfigMap or a Secret, by key. A text is copied only when it is used.
type values struct {
	text   map[string]string
	binary map[string][]byte
}

func (v values) get(key string) (value []byte, found bool) {
	if value, found = v.binary[key]; found {
		return value, true
	}
	text, found := v.text[key]
	return []byte(text), found
}

// keys adds the keys that items name, or all keys if there are no items.
func (c *content) keys(kind string, from values, items []v1.KeyToPath, mode *int32, optional *bool) error {
	if len(items) == 0 {
		for key, value := range from.text {
			if err := c.add(key, []byte(value), modeOf(nil, mode)); err != nil {
				return err
			}
		}
		for key, value := range from.binary {
			if err := c.add(key, value, modeOf(nil, mode)); err != nil {
				return err
			}
		}
		return nil
	}
	for _, item := range items {
		value, found := from.get(item.Key)
		if !found {
			if optional != nil && *optional {
				continue
			}
			return fmt.Errorf("%s references non-existent config key: %s", kind, item.Key)
		}
		if err := c.add(item.Path, value, modeOf(item.Mode, mode)); err != nil {
			return err
		}
	}
	return nil
}

func (c *content) downward(in pod.Inside, items []v1.DownwardAPIVolumeFile, mode *int32) error {
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
		if err := c.add(item.Path, []byte(value), modeOf(item.Mode, mode)); err != nil {
			return err
		}
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
