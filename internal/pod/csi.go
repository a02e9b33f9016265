package pod

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// CSIDriver is a CSIDriver of storage.k8s.io/v1. Kubernetes' Go type for it would bring all others of that group into
// the binary. The fields that have a meaning on a node alone are described.
type CSIDriver struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              CSIDriverSpec `json:"spec"`
}

// CSIDriverSpec is what a driver wants.
type CSIDriverSpec struct {
	AttachRequired  *bool `json:"attachRequired,omitempty"`
	PodInfoOnMount  *bool `json:"podInfoOnMount,omitempty"`
	StorageCapacity *bool `json:"storageCapacity,omitempty"`
	SELinuxMount    *bool `json:"seLinuxMount,omitempty"`
	// VolumeLifecycleModes are the kinds of volumes that the driver has.
	VolumeLifecycleModes []VolumeLifecycleMode `json:"volumeLifecycleModes,omitempty"`
	// FSGroupPolicy says when a volume is given to the pod's fsGroup; nil is FSGroupWithFSType.
	FSGroupPolicy *FSGroupPolicy `json:"fsGroupPolicy,omitempty"`
	// TokenRequests are the service account tokens that the driver is to be given.
	TokenRequests []CSITokenRequest `json:"tokenRequests,omitempty"`
	// RequiresRepublish makes a volume be published again all the time, with a Secret that may have changed.
	RequiresRepublish                  *bool  `json:"requiresRepublish,omitempty"`
	NodeAllocatableUpdatePeriodSeconds *int64 `json:"nodeAllocatableUpdatePeriodSeconds,omitempty"`
	ServiceAccountTokenInSecrets       *bool  `json:"serviceAccountTokenInSecrets,omitempty"`
	PreventPodSchedulingIfMissing      *bool  `json:"preventPodSchedulingIfMissing,omitempty"`
}

// CSITokenRequest is a service account token that a driver is to be given.
type CSITokenRequest struct {
	Audience          string `json:"audience"`
	ExpirationSeconds *int64 `json:"expirationSeconds,omitempty"`
}

// VolumeLifecycleMode is a kind of volumes.
type VolumeLifecycleMode string

// The kinds of volumes: those of PersistentVolumes, and inline ones.
const (
	VolumePersistent VolumeLifecycleMode = "Persistent"
	VolumeEphemeral  VolumeLifecycleMode = "Ephemeral"
)

// FSGroupPolicy says when a volume is given to the pod's fsGroup.
type FSGroupPolicy string

// The policies: always, never, or if the volume has a file system type and one writer.
const (
	FSGroupFile       FSGroupPolicy = "File"
	FSGroupNone       FSGroupPolicy = "None"
	FSGroupWithFSType FSGroupPolicy = "ReadWriteOnceWithFSType"
)

// longestCSIDriverName is from the specification of CSI.
const longestCSIDriverName = 63

// CSIDriverName returns what is wrong with the name of a CSI driver, by Kubernetes' rules.
func CSIDriverName(name string) []string {
	why := validation.IsDNS1123Subdomain(strings.ToLower(name))
	if len(name) > longestCSIDriverName {
		why = append(why, validation.MaxLenError(longestCSIDriverName))
	}
	return why
}
