// Package storageclass has the type of StorageClasses, and says which one a claim has. It is pure.
//
// Begin reading at Of.
package storageclass

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Class is a StorageClass of storage.k8s.io/v1. Kubernetes' Go type for it would bring all others of that group into
// the binary.
type Class struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	// Provisioner is the CSI driver that makes volumes of the class; see IsDriver.
	Provisioner string `json:"provisioner"`
	// Parameters are what the driver is told. Those with ParameterPrefix are for who calls it.
	Parameters    map[string]string                 `json:"parameters,omitempty"`
	ReclaimPolicy *v1.PersistentVolumeReclaimPolicy `json:"reclaimPolicy,omitempty"`
	MountOptions  []string                          `json:"mountOptions,omitempty"`

	AllowVolumeExpansion *bool                     `json:"allowVolumeExpansion,omitempty"`
	VolumeBindingMode    *BindingMode              `json:"volumeBindingMode,omitempty"`
	AllowedTopologies    []v1.TopologySelectorTerm `json:"allowedTopologies,omitempty"`
}

// BindingMode says when Kubernetes makes a volume. podrun makes it for the first pod.
type BindingMode string

// The binding modes.
const (
	Immediate            BindingMode = "Immediate"
	WaitForFirstConsumer BindingMode = "WaitForFirstConsumer"
)

// AnnotationDefault makes a class that of claims that name none.
const AnnotationDefault = "storageclass.kubernetes.io/is-default-class"

// IsDriver reports whether the provisioner is a CSI driver. The names of others have a slash, as
// kubernetes.io/no-provisioner: what they would make is a directory here.
func (c *Class) IsDriver() bool { return !strings.Contains(c.Provisioner, "/") }

// Of returns the class of a claim; nil if it has none, or one of which there is no document.
func Of(classes map[string]*Class, claim *v1.PersistentVolumeClaim) (*Class, error) {
	if name := claim.Spec.StorageClassName; name != nil {
		return classes[*name], nil
	}
	var defaults []string
	for _, name := range slices.Sorted(maps.Keys(classes)) {
		if classes[name].Annotations[AnnotationDefault] == "true" {
			defaults = append(defaults, name)
		}
	}
	switch len(defaults) {
	case 0:
		return nil, nil
	case 1:
		return classes[defaults[0]], nil
	}
	return nil, fmt.Errorf("the claim %q names no StorageClass, and %s are all the default one",
		claim.Name, strings.Join(defaults, ", "))
}
