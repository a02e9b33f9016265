// Package persistent finds the PersistentVolume of a claim, and says what the documents of a CSI driver forbid. It is
// pure: it knows documents, and not what is mounted.
//
// Unlike in Kubernetes no controller chooses a volume for a claim: one of the two documents names the other.
//
// Begin reading at Bound.
package persistent

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// Recorded reports whether a claim has used a PersistentVolume by the machine's records.
type Recorded func(claim pod.Key, volume string) (bool, error)

// Bound returns the PersistentVolume that a claim has; nil if it has none, and is a directory. An error is that it
// should have one, and cannot. Of several claims that name one, that which has it by the records keeps it: a new
// document does not stop what works. recorded may be nil: nothing is known of records.
func Bound(all pod.Objects, claim pod.Key, recorded Recorded) (*v1.PersistentVolume, error) {
	document := all.Claims[claim]
	if document == nil || document.Spec.VolumeName == "" {
		volume, err := referring(all, claim)
		if volume == nil || document == nil {
			return volume, err
		}
		return fit(volume, &v1.PersistentVolumeClaim{ // what else it says has no meaning for a volume that is for it
			ObjectMeta: document.ObjectMeta, Spec: v1.PersistentVolumeClaimSpec{VolumeMode: document.Spec.VolumeMode},
		})
	}
	name := document.Spec.VolumeName
	volume := all.Volumes[name]
	if volume == nil {
		return nil, fmt.Errorf("the PersistentVolumeClaim %q names the PersistentVolume %q, which no manifest has", claim.Name, name)
	}
	if ref := volume.Spec.ClaimRef; ref != nil {
		if key := (pod.Key{Namespace: ref.Namespace, Name: ref.Name}); key != claim {
			return nil, fmt.Errorf("the PersistentVolume %q is for the claim %s, not for %s", name, key, claim)
		}
	} else if err := contested(all, claim, name, recorded); err != nil {
		return nil, err
	}
	return fit(volume, document)
}

// fit returns the volume of a claim, if it can be that.
func fit(volume *v1.PersistentVolume, claim *v1.PersistentVolumeClaim) (*v1.PersistentVolume, error) {
	if why := unfit(&volume.Spec, &claim.Spec); why != "" {
		return nil, fmt.Errorf("the PersistentVolume %q does not fit the claim %q: %s", volume.Name, claim.Name, why)
	}
	return volume, nil
}

// IsBlock reports whether a volume is a block device. It is a file system if it does not say what it is.
func IsBlock(mode *v1.PersistentVolumeMode) bool {
	return mode != nil && *mode == v1.PersistentVolumeBlock
}

// referring returns the PersistentVolume whose claimRef names a claim.
func referring(all pod.Objects, claim pod.Key) (*v1.PersistentVolume, error) {
	var names []string
	for name, volume := range all.Volumes {
		if ref := volume.Spec.ClaimRef; ref != nil && ref.Namespace == claim.Namespace && ref.Name == claim.Name {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	switch len(names) {
	case 0:
		return nil, nil
	case 1:
		return all.Volumes[names[0]], nil
	}
	return nil, fmt.Errorf("the PersistentVolumes %q and %q are both for the claim %s", names[0], names[1], claim)
}

// contested returns why a claim cannot have the PersistentVolume that it names, since other claims name it too.
func contested(all pod.Objects, claim pod.Key, volume string, recorded Recorded) error {
	var rivals, users []pod.Key
	for _, key := range slices.SortedFunc(maps.Keys(all.Claims), pod.Key.Compare) {
		if key != claim && all.Claims[key].Spec.VolumeName == volume {
			rivals = append(rivals, key)
		}
	}
	if len(rivals) == 0 {
		return nil
	}
	for _, key := range append(slices.Clone(rivals), claim) {
		if recorded == nil {
			break
		}
		used, err := recorded(key, volume)
		if err != nil {
			return err // it may be that claim's
		}
		if used {
			users = append(users, key)
		}
	}
	switch {
	case len(users) != 1:
		return fmt.Errorf("the claims %s and %s name the PersistentVolume %q, and it can have one; its claimRef says which",
			claim, rivals[0], volume)
	case users[0] != claim:
		return fmt.Errorf("the PersistentVolume %q is the claim %s's, which has used it; it cannot be that of %s too",
			volume, users[0], claim)
	}
	return nil
}

// unfit says why a volume cannot be a claim's, by Kubernetes' rules; "" if it can. A claim without a class has any: in
// Kubernetes it has the default one.
func unfit(v *v1.PersistentVolumeSpec, c *v1.PersistentVolumeClaimSpec) string {
	for _, mode := range c.AccessModes {
		if !slices.Contains(v.AccessModes, mode) {
			return fmt.Sprintf("it has no access mode %s", mode)
		}
	}
	if IsBlock(v.VolumeMode) != IsBlock(c.VolumeMode) {
		return fmt.Sprintf("the volumeMode of one is %s, and of the other not", v1.PersistentVolumeBlock)
	}
	if class := c.StorageClassName; class != nil && *class != v.StorageClassName {
		return fmt.Sprintf("its storage class is %q, and the claim's %q", v.StorageClassName, *class)
	}
	size, wanted := v.Capacity[v1.ResourceStorage], c.Resources.Requests[v1.ResourceStorage]
	if size.Cmp(wanted) < 0 {
		return fmt.Sprintf("its capacity is %s, and the claim requests %s", size.String(), wanted.String())
	}
	return ""
}

// UsedAs returns an error if the container has a block device among its mounts, or what is none among its devices.
func UsedAs(c *v1.Container, volume string, block bool) error {
	isDevice := slices.ContainsFunc(c.VolumeDevices, func(d v1.VolumeDevice) bool { return d.Name == volume })
	switch {
	case block && !isDevice:
		return errors.New("it has volumeMode Block, but is specified in volumeMounts")
	case !block && isDevice:
		return errors.New("it has volumeMode Filesystem, but is specified in volumeDevices")
	}
	return nil
}
