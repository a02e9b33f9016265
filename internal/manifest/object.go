package manifest

import (
	"fmt"
	"strings"

	"podrun.io/podrun/internal/manifest/decode"
	"podrun.io/podrun/internal/manifest/kinds"
	"podrun.io/podrun/internal/manifest/objects"
	"podrun.io/podrun/internal/pod"
)

// The kinds of objects of which a pod needs the content.
const (
	KindConfigMap = objects.KindConfigMap
	KindSecret    = objects.KindSecret
)

// Object is an object to which pods refer.
type Object struct {
	objects.Object
	Origin Origin
}

// Name identifies a pod or an object. It is unique in the desired state.
type Name struct {
	Kind string // "" stands for pod
	Key  pod.Key
}

// Name returns the name of the object.
func (o Object) Name() Name { return Name{o.Kind(), o.Key()} }

// object loads an object to which pods refer. The errors about a Secret do not contain its values.
func (l *loader) object(o object, kind kinds.Kind) {
	if (kind.Name == objects.KindVolume || kind.Name == objects.KindClass) && l.Policy != nil {
		// It may be any directory of the machine, and any volume that a driver can reach.
		kind.Meaning = "with --pod-security, pods have no PersistentVolumes"
		l.pass(o, kind)
		return
	}
	read, found := objects.Read(kind.Name, o.value)
	f := findings{errs: found.Errs, warnings: found.Ignored}
	l.strict(&f)
	errs := withUnexplained(f.errs, found.Invalid)
	for _, e := range errs {
		l.failAt(o, e.Path, redacted(e, kind.Name == KindSecret), pod.Key{})
	}
	if len(errs) > 0 {
		return
	}
	if read.CSIDriver != nil && l.Policy != nil {
		// Its author is anybody: the administrator lists drivers by a flag.
		kind.Meaning = "with --pod-security, drivers are those of --inline-csi-drivers"
		l.pass(o, kind)
		return
	}
	loaded := Object{read, l.Origin}
	if l.objects[loaded.Name()] {
		l.failAt(o, "metadata.name",
			fmt.Sprintf("Duplicate value: %q: is given twice", loaded.Name().Key.Name), pod.Key{})
		return
	}
	l.objects[loaded.Name()] = true
	l.loaded.Objects = append(l.loaded.Objects, loaded)
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
