// Package claims finds the volumes for which pods would wait, by what the documents say, and claims that are probably
// mistyped. It knows documents alone: neither drivers nor what is on the machine.
//
// Begin reading at Warnings.
package claims

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/decode"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/pod/storageclass"
	"podrun.io/podrun/internal/volume/csi"
	"podrun.io/podrun/internal/volume/persistent"
)

// Warnings returns a warning for each volume of a pod for which the pod would wait when it starts, by what the
// documents say, and for claims that are probably mistyped. serve accepts such a pod, for another manifest may be
// added. All is set if there are all documents: else what is not there may be in another manifest.
func Warnings(desired manifest.Desired, all bool) (warnings []manifest.FieldError) {
	for _, key := range slices.SortedFunc(maps.Keys(desired.Pods), pod.Key.Compare) {
		p := desired.Pods[key]
		warn := func(i int, field, message string) {
			warnings = append(warnings, manifest.FieldError{
				File: manifest.OriginOf(p).Path, Field: fmt.Sprintf("spec.volumes[%d].%s", i, field), Message: message, Key: key,
			})
		}
		for i, v := range p.Spec.Volumes {
			var field string
			var err error
			in := pod.Inside{Pod: p, Objects: desired.Objects}
			switch {
			case v.CSI != nil:
				field, err = "csi", forbidden(csi.InlineRequest(in, &v), all)
			case v.PersistentVolumeClaim != nil:
				field, err = "persistentVolumeClaim", claimed(in, &v, all)
			}
			if err != nil {
				warn(i, field, fmt.Sprintf("the pod %s will wait: %v", key, err))
			} else if text := mistyped(in, &v); text != "" && all {
				warn(i, field, fmt.Sprintf("the pod %s: %s", key, text))
			}
		}
	}
	return warnings
}

// forbidden returns why a driver will not be asked for a volume. A Secret may be in another manifest, unless all is
// set.
func forbidden(r csi.Request, all bool) error {
	if !all {
		r.Lacks = nil
	}
	return r.Forbidden()
}

// mistyped returns that a volume's claim is a directory though other claims of its namespace have documents; "" if that
// is not so.
func mistyped(in pod.Inside, v *v1.Volume) string {
	if v.PersistentVolumeClaim == nil {
		return ""
	}
	name := v.PersistentVolumeClaim.ClaimName
	var others []string
	for key := range in.Objects.Claims {
		if key.Namespace == in.Pod.Namespace {
			others = append(others, key.Name)
		}
	}
	for _, volume := range in.Objects.Volumes {
		if ref := volume.Spec.ClaimRef; ref != nil && ref.Namespace == in.Pod.Namespace {
			others = append(others, ref.Name)
		}
	}
	if len(others) == 0 || slices.Contains(others, name) {
		return ""
	}
	text := fmt.Sprintf("no document has the claim %q, so that it is a directory", name)
	slices.Sort(others)
	if near, _ := decode.Nearest(name, others); near != "" {
		text += fmt.Sprintf("; did you mean %q?", near)
	}
	return text
}

// claimed returns why a pod waits for the volume of its claim; nil if nothing is known of that.
func claimed(in pod.Inside, v *v1.Volume, all bool) error {
	objects, p := in.Objects, in.Pod
	key := pod.Key{Namespace: p.Namespace, Name: v.PersistentVolumeClaim.ClaimName}
	claim := objects.Claims[key]
	volume, err := persistent.Bound(objects, key, func(pod.Key) string { return "" })
	var block bool
	switch {
	case err != nil && all:
		return err
	case err != nil, !all && claim == nil && volume == nil:
		return nil
	case volume != nil && volume.Spec.CSI != nil:
		if err := forbidden(csi.PersistentRequest(in, v, volume), all); err != nil {
			return err
		}
		block = persistent.IsBlock(volume.Spec.VolumeMode)
	case volume != nil:
		block = persistent.IsBlock(volume.Spec.VolumeMode)
	case claim != nil:
		block = persistent.IsBlock(claim.Spec.VolumeMode)
		if err := classed(objects, claim); err != nil && all {
			return err
		}
	}
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		uses := slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == v.Name }) ||
			slices.ContainsFunc(c.VolumeDevices, func(d v1.VolumeDevice) bool { return d.Name == v.Name })
		if !uses {
			continue
		}
		if err := persistent.UsedAs(&c, v.Name, block); err != nil {
			return fmt.Errorf("the volume of the claim %q, in container %s: %w", key.Name, c.Name, err)
		}
	}
	return nil
}

// classed returns why no volume is made for a claim that has no PersistentVolume.
func classed(objects pod.Objects, claim *v1.PersistentVolumeClaim) error {
	class, err := storageclass.Of(objects.Classes, claim)
	name := claim.Spec.StorageClassName
	switch {
	case err != nil:
		return err
	case class == nil && name != nil && *name != "":
		return fmt.Errorf("the claim %q names the StorageClass %q, which no manifest has; without --plugins it would be a "+
			"directory", claim.Name, *name)
	case persistent.IsBlock(claim.Spec.VolumeMode) && (class == nil || !class.IsDriver()):
		return errors.New("the claim has volumeMode Block, and no PersistentVolume or driver")
	}
	return nil
}
