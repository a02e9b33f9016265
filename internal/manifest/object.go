package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"podrun.io/podrun/internal/manifest/decode"
	"podrun.io/podrun/internal/manifest/support"
	"podrun.io/podrun/internal/manifest/validate"
	"podrun.io/podrun/internal/pod"
)

// The kinds of objects that pods refer to.
const (
	KindConfigMap = "ConfigMap"
	KindSecret    = "Secret"
)

// Object is a ConfigMap or a Secret: exactly one of the two fields is not nil.
type Object struct {
	ConfigMap *v1.ConfigMap
	Secret    *v1.Secret
	Origin    Origin
}

// Name identifies a pod, ConfigMap or Secret. It is unique in the desired state.
type Name struct {
	Kind string // "" stands for pod
	Key  pod.Key
}

// Name returns the name of the object.
func (o Object) Name() Name {
	if o.Secret != nil {
		return Name{KindSecret, pod.Key{Namespace: o.Secret.Namespace, Name: o.Secret.Name}}
	}
	return Name{KindConfigMap, pod.Key{Namespace: o.ConfigMap.Namespace, Name: o.ConfigMap.Name}}
}

// object loads a ConfigMap or a Secret. The errors about a Secret do not contain its values.
func (l *loader) object(o object, kind string) {
	secret := kind == KindSecret
	t := reflect.TypeFor[v1.ConfigMap]()
	if secret {
		t = reflect.TypeFor[v1.Secret]()
	}
	errs := decode.Check(o.value, t, "", nil)
	errs = append(errs, support.CheckMeta(o.value)...)
	read := Object{Origin: l.Origin}
	var more field.ErrorList
	var err error
	if secret {
		read.Secret = &v1.Secret{}
		err = decodeInto(o.value, read.Secret)
		setSecretDefaults(read.Secret)
		more = validate.Secret(read.Secret)
	} else {
		read.ConfigMap = &v1.ConfigMap{}
		err = decodeInto(o.value, read.ConfigMap)
		orElse(&read.ConfigMap.Namespace, v1.NamespaceDefault)
		more = validate.ConfigMap(read.ConfigMap)
	}
	if err != nil && len(errs) == 0 {
		errs = append(errs, decode.Error{Message: err.Error()})
	}
	errs = withUnexplained(errs, more)
	for _, e := range errs {
		l.failAt(o, e.Path, redacted(e, secret), pod.Key{})
	}
	if len(errs) > 0 {
		return
	}
	if l.objects[read.Name()] {
		l.failAt(o, "metadata.name",
			fmt.Sprintf("Duplicate value: %q: is given twice", read.Name().Key.Name), pod.Key{})
		return
	}
	l.objects[read.Name()] = true
	l.loaded.Objects = append(l.loaded.Objects, read)
}

// redacted returns the message of an error, for a Secret without the value that is wrong.
func redacted(e decode.Error, secret bool) string {
	if what, _, shown := strings.Cut(e.Message, ", not "); secret && shown &&
		(within(e.Path, "data") || within(e.Path, "stringData")) {
		return what
	}
	return e.Message
}

// decodeInto decodes a value that decode.Check has cleaned into a Go type. Unknown and duplicate
// fields are errors.
func decodeInto(value map[string]any, into any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("decoding: %w", err)
	}
	strict, err := kjson.UnmarshalStrict(bytes.TrimSpace(text), into)
	if err != nil {
		return fmt.Errorf("decoding: %w", err)
	}
	if len(strict) > 0 {
		return fmt.Errorf("decoding: %w", strict[0])
	}
	return nil
}

// setSecretDefaults sets the fields that a Secret omits, and moves stringData into data, as the API
// server does.
func setSecretDefaults(s *v1.Secret) {
	orElse(&s.Namespace, v1.NamespaceDefault)
	orElse(&s.Type, v1.SecretTypeOpaque)
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = map[string][]byte{}
	}
	for key, value := range s.StringData {
		s.Data[key] = []byte(value)
	}
	s.StringData = nil
}
