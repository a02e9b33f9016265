package csi

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/volume/persistent"
)

// InlineRequest returns what a driver is asked for by an inline volume.
func InlineRequest(in pod.Inside, volume *v1.Volume) Request {
	s := volume.CSI
	r := Request{Pod: in.Pod, Volume: volume.Name, Source: s, Driver: in.Objects.CSIDrivers[s.Driver]}
	if ref := s.NodePublishSecretRef; ref != nil {
		of := &v1.SecretReference{Namespace: in.Pod.Namespace, Name: ref.Name}
		r.Secrets, r.Lacks = persistent.SecretOf(in.Objects, of)
	}
	return r
}

// PersistentRequest returns what a driver is asked for by the volume of a claim that has a PersistentVolume.
func PersistentRequest(in pod.Inside, volume *v1.Volume, pv *v1.PersistentVolume) Request {
	s, claim := pv.Spec.CSI, volume.PersistentVolumeClaim.ClaimName
	readOnly := s.ReadOnly || !slices.ContainsFunc(in.Pod.Spec.Volumes, func(o v1.Volume) bool {
		c := o.PersistentVolumeClaim
		return c != nil && c.ClaimName == claim && !c.ReadOnly
	})
	r := Request{
		Pod: in.Pod, Volume: volume.Name, Driver: in.Objects.CSIDrivers[s.Driver],
		Source: &v1.CSIVolumeSource{
			Driver: s.Driver, ReadOnly: &readOnly, FSType: &s.FSType, VolumeAttributes: s.VolumeAttributes,
		},
		Persistent: &Persistent{
			Name: pv.Name, Claim: claim, Handle: s.VolumeHandle, Modes: pv.Spec.AccessModes,
			MountOptions: pv.Spec.MountOptions, Block: persistent.IsBlock(pv.Spec.VolumeMode),
		},
	}
	r.Secrets, r.Lacks = persistent.SecretOf(in.Objects, s.NodePublishSecretRef)
	if r.Lacks == nil {
		r.Persistent.StageSecrets, r.Lacks = persistent.SecretOf(in.Objects, s.NodeStageSecretRef)
	}
	if slices.ContainsFunc(in.Pod.Spec.Volumes, func(o v1.Volume) bool { return o.CSI != nil && o.Name == pv.Name }) {
		// Drivers are told of a path that has one of these names, and not which.
		r.Lacks = fmt.Errorf("the pod has an inline volume with the name of the PersistentVolume, %q", pv.Name)
	}
	return r
}
