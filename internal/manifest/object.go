package manifest

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podrun.io/podrun/internal/manifest/decode"
	"podrun.io/podrun/internal/manifest/defaults"
	"podrun.io/podrun/internal/manifest/support"
	"podrun.io/podrun/internal/manifest/validate/objects"
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
	f := findings{errs: decode.Check(o.value, t, "", nil)}
	refused, ignored := support.CheckMeta(o.value)
	f.errs, f.warnings = append(f.errs, refused...), ignored
	l.strict(&f)
	read := Object{Origin: l.Origin}
	var more field.ErrorList
	var err error
	if secret {
		read.Secret = &v1.Secret{}
		err = decode.Into(o.value, read.Secret)
		defaults.Secret(read.Secret)
		more = objects.Secret(read.Secret)
	} else {
		read.ConfigMap = &v1.ConfigMap{}
		err = decode.Into(o.value, read.ConfigMap)
		read.ConfigMap.Namespace = cmp.Or(read.ConfigMap.Namespace, v1.NamespaceDefault)
		more = objects.ConfigMap(read.ConfigMap)
	}
	if err != nil && len(f.errs) == 0 {
		f.errs = append(f.errs, decode.Error{Message: err.Error()})
	}
	errs := withUnexplained(f.errs, more)
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
	l.warn(o, f.warnings, pod.Key{})
}

// redacted returns the message of an error, for a Secret without the value that is wrong.
func redacted(e decode.Error, secret bool) string {
	if what, _, shown := strings.Cut(e.Message, ", not "); secret && shown &&
		(within(e.Path, "data") || within(e.Path, "stringData")) {
		return what
	}
	return e.Message
}
