package persistent

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// Refused returns an error if the CSIDriver document forbids an inline volume, or that of a PersistentVolume. Without a
// document the driver answers for itself.
func Refused(d *pod.CSIDriver, inline bool) error {
	switch {
	case d == nil:
		return nil
	case !inline && !slices.Contains(d.Spec.VolumeLifecycleModes, pod.VolumePersistent):
		return fmt.Errorf("the CSIDriver %s has no volumeLifecycleMode Persistent, which PersistentVolumes need", d.Name)
	case !inline && (d.Spec.AttachRequired == nil || *d.Spec.AttachRequired):
		return fmt.Errorf("the CSIDriver %s has attachRequired, which is true if it is left out: its controller attaches "+
			"volumes to machines, and podrun calls none", d.Name)
	case inline && !slices.Contains(d.Spec.VolumeLifecycleModes, pod.VolumeEphemeral):
		return fmt.Errorf("the CSIDriver %s has no volumeLifecycleMode Ephemeral, which inline volumes need", d.Name)
	case len(d.Spec.TokenRequests) > 0:
		return fmt.Errorf("the CSIDriver %s requests tokens of service accounts, and there is no API server to issue them",
			d.Name)
	}
	return nil
}

// SecretOf returns the data of a Secret to which a volume refers; nil if it refers to none.
func SecretOf(all pod.Objects, ref *v1.SecretReference) (map[string]string, error) {
	if ref == nil {
		return nil, nil
	}
	secret := all.Secrets[pod.Key{Namespace: ref.Namespace, Name: ref.Name}]
	if secret == nil {
		return nil, fmt.Errorf("secret %q not found", ref.Name)
	}
	data := map[string]string{}
	for key, value := range secret.Data {
		data[key] = string(value)
	}
	return data, nil
}
