// Package objects reads the objects beside pods and workloads to which these refer: ConfigMaps, Secrets, CSIDrivers
// and PersistentVolumes. It decodes them, gives them their defaults and validates them, and says to which a pod refers;
// it is pure. It does not know lines, and not what other objects there are.
//
// Begin reading at Read.
package objects

import (
	"cmp"
	"reflect"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podrun.io/podrun/internal/manifest/decode"
	"podrun.io/podrun/internal/manifest/defaults"
	"podrun.io/podrun/internal/manifest/support"
	validate "podrun.io/podrun/internal/manifest/validate/objects"
	"podrun.io/podrun/internal/pod"
)

// The kinds of objects.
const (
	KindConfigMap = "ConfigMap"
	KindSecret    = "Secret"
	KindCSIDriver = "CSIDriver"
	KindVolume    = "PersistentVolume"
	KindClaim     = "PersistentVolumeClaim"
)

// Object is an object of one of the kinds: exactly one of the fields is not nil.
type Object struct {
	ConfigMap *v1.ConfigMap
	Secret    *v1.Secret
	CSIDriver *pod.CSIDriver
	Volume    *v1.PersistentVolume
	Claim     *v1.PersistentVolumeClaim
}

// Kind returns the object's kind.
func (o Object) Kind() string {
	switch {
	case o.Secret != nil:
		return KindSecret
	case o.CSIDriver != nil:
		return KindCSIDriver
	case o.Volume != nil:
		return KindVolume
	case o.Claim != nil:
		return KindClaim
	}
	return KindConfigMap
}

// Key returns the object's name, which is unique among those of its kind. CSIDrivers and PersistentVolumes have no
// namespace.
func (o Object) Key() pod.Key {
	switch {
	case o.Secret != nil:
		return pod.Key{Namespace: o.Secret.Namespace, Name: o.Secret.Name}
	case o.CSIDriver != nil:
		return pod.Key{Name: o.CSIDriver.Name}
	case o.Volume != nil:
		return pod.Key{Name: o.Volume.Name}
	case o.Claim != nil:
		return pod.Key{Namespace: o.Claim.Namespace, Name: o.Claim.Name}
	}
	return pod.Key{Namespace: o.ConfigMap.Namespace, Name: o.ConfigMap.Name}
}

// Findings are what is wrong with an object: Errs by its fields as they are written, Invalid by its values, and
// Ignored what has no effect here.
type Findings struct {
	Errs, Ignored []decode.Error
	Invalid       field.ErrorList
}

// Read reads an object of one of the kinds, but for a claim.
func Read(kind string, value map[string]any) (o Object, f Findings) {
	var into any
	var t reflect.Type
	switch kind {
	case KindSecret:
		o.Secret = &v1.Secret{}
		into, t = o.Secret, reflect.TypeFor[v1.Secret]()
	case KindCSIDriver:
		o.CSIDriver = &pod.CSIDriver{}
		into, t = o.CSIDriver, reflect.TypeFor[pod.CSIDriver]()
	case KindVolume:
		o.Volume = &v1.PersistentVolume{}
		into, t = o.Volume, reflect.TypeFor[v1.PersistentVolume]()
	default:
		o.ConfigMap = &v1.ConfigMap{}
		into, t = o.ConfigMap, reflect.TypeFor[v1.ConfigMap]()
	}
	f.Errs = decode.Check(value, t, "", nil)
	check := support.CheckMeta
	if o.Volume != nil {
		check = support.CheckVolume
	}
	refused, ignored := check(value)
	f.Errs, f.Ignored = append(f.Errs, refused...), ignored
	err := decode.Into(value, into)
	switch {
	case o.Secret != nil:
		defaults.Secret(o.Secret)
		f.Invalid = validate.Secret(o.Secret)
	case o.CSIDriver != nil:
		if len(o.CSIDriver.Spec.VolumeLifecycleModes) == 0 {
			o.CSIDriver.Spec.VolumeLifecycleModes = []pod.VolumeLifecycleMode{pod.VolumePersistent}
		}
		f.Invalid = validate.CSIDriver(o.CSIDriver)
	case o.Volume != nil:
		f.Invalid = validate.PersistentVolume(o.Volume)
	default:
		o.ConfigMap.Namespace = cmp.Or(o.ConfigMap.Namespace, v1.NamespaceDefault)
		f.Invalid = validate.ConfigMap(o.ConfigMap)
	}
	if err != nil && len(f.Errs) == 0 {
		f.Errs = append(f.Errs, decode.Error{Message: err.Error()})
	}
	return o, f
}
