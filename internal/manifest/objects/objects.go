// Package objects reads the objects beside pods and workloads to which these refer: ConfigMaps, Secrets, CSIDrivers,
// StorageClasses and PersistentVolumes. It decodes them, gives them their defaults and validates them, and says to
// which a pod refers; it is pure. It does not know lines, and not what other objects there are.
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
	"podrun.io/podrun/internal/pod/storageclass"
)

// The kinds of objects.
const (
	KindConfigMap = "ConfigMap"
	KindSecret    = "Secret"
	KindCSIDriver = "CSIDriver"
	KindVolume    = "PersistentVolume"
	KindClass     = "StorageClass"
	KindClaim     = "PersistentVolumeClaim"
)

// Object is an object of one of the kinds: exactly one of the fields is not nil.
type Object struct {
	ConfigMap *v1.ConfigMap
	Secret    *v1.Secret
	CSIDriver *pod.CSIDriver
	Volume    *v1.PersistentVolume
	Class     *storageclass.Class
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
	case o.Class != nil:
		return KindClass
	case o.Claim != nil:
		return KindClaim
	}
	return KindConfigMap
}

// Key returns the object's name, which is unique among those of its kind. CSIDrivers, PersistentVolumes and
// StorageClasses have no namespace.
func (o Object) Key() pod.Key {
	switch {
	case o.Secret != nil:
		return pod.Key{Namespace: o.Secret.Namespace, Name: o.Secret.Name}
	case o.CSIDriver != nil:
		return pod.Key{Name: o.CSIDriver.Name}
	case o.Volume != nil:
		return pod.Key{Name: o.Volume.Name}
	case o.Class != nil:
		return pod.Key{Name: o.Class.Name}
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
	case KindClass:
		o.Class = &storageclass.Class{}
		into, t = o.Class, reflect.TypeFor[storageclass.Class]()
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
	case o.Class != nil:
		f.Invalid = validate.StorageClass(o.Class)
	default:
		o.ConfigMap.Namespace = cmp.Or(o.ConfigMap.Namespace, v1.NamespaceDefault)
		f.Invalid = validate.ConfigMap(o.ConfigMap)
	}
	if err != nil && len(f.Errs) == 0 {
		f.Errs = append(f.Errs, decode.Error{Message: err.Error()})
	}
	return o, f
}

// Add adds the object to those that pods can refer to.
func (o Object) Add(to *pod.Objects) {
	switch key := o.Key(); {
	case o.Secret != nil:
		to.Secrets[key] = o.Secret
	case o.CSIDriver != nil:
		to.CSIDrivers[key.Name] = o.CSIDriver
	case o.Volume != nil:
		to.Volumes[key.Name] = o.Volume
	case o.Class != nil:
		to.Classes[key.Name] = o.Class
	case o.Claim != nil:
		to.Claims[key] = o.Claim
	default:
		to.ConfigMaps[key] = o.ConfigMap
	}
}

// IsPlain reports whether the object is a claim that names no volume, and is no block device. It may be given again by
// the manifests of each of the pods that share the claim.
func (o Object) IsPlain() bool {
	return o.Claim != nil && o.Claim.Spec.VolumeName == "" && *o.Claim.Spec.VolumeMode != v1.PersistentVolumeBlock
}
