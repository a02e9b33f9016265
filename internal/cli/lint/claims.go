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

// claims returns a warning for each claim of a pod for which the pod would wait when it starts, or that is probably
// mistyped, by what the documents say. serve accepts such a pod, for another manifest may be added. All is set if there
// are all documents: else what is not there may be in another manifest.
func claims(desired manifest.Desired, lines *texts, all, storage bool) (warnings []manifest.FieldError) {
	for _, key := range slices.SortedFunc(maps.Keys(desired.Pods), pod.Key.Compare) {
		p := desired.Pods[key]
		for i, v := range p.Spec.Volumes {
			if v.PersistentVolumeClaim == nil {
				continue
			}
			e := manifest.FieldError{File: manifest.OriginOf(p).Path, Key: key}
			if err := claimed(desired.Objects, p, &v, all); err != nil {
				e.Field, e.Line = lines.volume(p, i, "persistentVolumeClaim")
				e.Message = fmt.Sprintf("the pod %s will wait: %v", key, err)
			} else if all && storage {
				e.Field, e.Line = lines.volume(p, i, "persistentVolumeClaim.claimName")
				claim := pod.Key{Namespace: p.Namespace, Name: v.PersistentVolumeClaim.ClaimName}
				e.Message = unknown(desired.Objects, claim)
			}
			if e.Message != "" {
				warnings = append(warnings, e)
			}
		}
	}
	return warnings
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
func claimed(objects pod.Objects, p *v1.Pod, v *v1.Volume, all bool) error {
	key := pod.Key{Namespace: p.Namespace, Name: v.PersistentVolumeClaim.ClaimName}
	claim := objects.Claims[key]
	volume, err := persistent.Bound(objects, key)
	var block bool
	switch {
	case err != nil && all:
		return err
	case err != nil, !all && claim == nil && volume == nil:
		return nil
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

// isDirectory reports whether one of the paths is a directory, which has all documents as serve reads them.
func isDirectory(paths []string) bool {
	return slices.ContainsFunc(paths, func(path string) bool {
		info, err := os.Stat(path)
		return err == nil && info.IsDir()
	})
}

// hasStorage reports whether there are documents of claims or of what they may have: then a claim is probably no
// directory.
func hasStorage(sources manifest.Sources) bool {
	for _, s := range sources.Last {
		if slices.ContainsFunc(s.Objects, func(o manifest.Object) bool {
			return o.Claim != nil || o.Volume != nil || o.Class != nil
		}) {
			return true
		}
	}
	return false
}
