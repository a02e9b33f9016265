package lint

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/decode"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/pod/storageclass"
	"podrun.io/podrun/internal/volume/persistent"
)

// documents are what was read. serve accepts a pod that would wait by them, for another manifest may be added.
type documents struct {
	manifest.Desired
	// all is set if there are all documents: else what is not there may be in another manifest. objects is set if
	// there are objects beside the pods, and storage if they are claims, or of what claims may have.
	all, objects, storage bool
}

// volumes returns a warning for each volume of a pod for which the pod would wait when it starts, or whose claim is
// probably mistyped, by what the documents say.
func (d documents) volumes(lines *texts) (warnings []manifest.FieldError) {
	for _, key := range slices.SortedFunc(maps.Keys(d.Pods), pod.Key.Compare) {
		p := d.Pods[key]
		for i, v := range p.Spec.Volumes {
			e := manifest.FieldError{File: manifest.OriginOf(p).Path, Key: key}
			var field string
			var err error
			switch c := v.PersistentVolumeClaim; {
			case v.CSI != nil:
				field, err = "csi", d.inline(p, v.CSI)
			case c == nil:
				continue
			default:
				field, err = "persistentVolumeClaim", d.claimed(p, &v)
			}
			if err != nil {
				e.Message = fmt.Sprintf("the pod %s will wait: %v", key, err)
			} else if c := v.PersistentVolumeClaim; c != nil && d.all && d.storage {
				field = "persistentVolumeClaim.claimName"
				e.Message = unknown(d.Objects, pod.Key{Namespace: p.Namespace, Name: c.ClaimName})
			}
			if e.Message != "" {
				e.Field, e.Line = lines.volume(p, i, field)
				warnings = append(warnings, e)
			}
		}
	}
	return warnings
}

// inline returns why a pod waits for an inline volume; nil if nothing is known of that.
func (d documents) inline(p *v1.Pod, s *v1.CSIVolumeSource) error {
	if err := persistent.Refused(d.Objects.CSIDrivers[s.Driver], true); err != nil || s.NodePublishSecretRef == nil {
		return err
	}
	return d.secret(&v1.SecretReference{Namespace: p.Namespace, Name: s.NodePublishSecretRef.Name})
}

// driven returns why a driver's volume is not made ready; nil if nothing is known of that.
func (d documents) driven(s *v1.CSIPersistentVolumeSource) error {
	err := persistent.Refused(d.Objects.CSIDrivers[s.Driver], false)
	for _, ref := range []*v1.SecretReference{s.NodePublishSecretRef, s.NodeStageSecretRef} {
		if err == nil {
			err = d.secret(ref)
		}
	}
	return err
}

// secret returns an error if there is no Secret to which a volume refers.
func (d documents) secret(ref *v1.SecretReference) error {
	if !d.all || !d.objects || d.Objects.Partial {
		return nil
	}
	_, err := persistent.SecretOf(d.Objects, ref)
	return err
}

// unknown returns what is to be said of a claim that no document has; "" if one has it, or may have it.
func unknown(objects pod.Objects, claim pod.Key) string {
	names := []string{}
	for key := range objects.Claims {
		if key.Namespace == claim.Namespace {
			names = append(names, key.Name)
		}
	}
	for _, v := range objects.Volumes {
		if ref := v.Spec.ClaimRef; ref != nil && ref.Namespace == claim.Namespace {
			names = append(names, ref.Name)
		}
	}
	if objects.Partial || slices.Contains(names, claim.Name) {
		return ""
	}
	message := fmt.Sprintf("no document has the claim %q: it is a directory", claim.Name)
	slices.Sort(names)
	if near, _ := decode.Nearest(claim.Name, names); near != "" {
		message += fmt.Sprintf("; did you mean %q?", near)
	}
	return message
}

// claimed returns why a pod waits for the volume of its claim; nil if nothing is known of that.
func (d documents) claimed(p *v1.Pod, v *v1.Volume) error {
	objects, all := d.Objects, d.all
	key := pod.Key{Namespace: p.Namespace, Name: v.PersistentVolumeClaim.ClaimName}
	claim := objects.Claims[key]
	volume, err := persistent.Bound(objects, key, nil)
	var block bool
	switch {
	case err != nil && all:
		return err
	case err != nil, !all && claim == nil && volume == nil:
		return nil
	case volume != nil:
		block = persistent.IsBlock(volume.Spec.VolumeMode)
		if source := volume.Spec.CSI; source != nil {
			if err := d.driven(source); err != nil {
				return err
			}
		}
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
	case class != nil && class.IsDriver():
		return persistent.Refused(objects.CSIDrivers[class.Provisioner], false)
	}
	return nil
}

// isDirectory reports whether one of the paths is a directory, which has all documents as serve reads them.
func isDirectory(paths []string) bool {
	return slices.ContainsFunc(paths, func(path string) bool {
		info, err := os.Stat(path)
		return err == nil && info.IsDir()
	})
}

// documentsOf returns what was read of paths.
func documentsOf(desired manifest.Desired, sources manifest.Sources, paths []string) documents {
	d := documents{Desired: desired, all: isDirectory(paths)}
	for _, s := range sources.Last {
		d.objects = d.objects || len(s.Objects) > 0
		d.storage = d.storage || slices.ContainsFunc(s.Objects, func(o manifest.Object) bool {
			return o.Claim != nil || o.Volume != nil || o.Class != nil
		})
	}
	return d
}
