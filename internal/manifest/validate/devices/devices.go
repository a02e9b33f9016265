// Package devices validates the block devices of containers (volumeDevices) by the rules of the API server. It is pure,
// and does not know what a claim's volume is.
//
// Begin reading at Validate.
package devices

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Validate validates the block devices of a pod's containers.
func Validate(s *v1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, kind := range []struct {
		name string
		all  []v1.Container
	}{{"initContainers", s.InitContainers}, {"containers", s.Containers}} {
		for i := range kind.all {
			c, at := &kind.all[i], path.Child(kind.name).Index(i)
			errs = append(errs, container(c, s.Volumes, at)...)
			if len(c.VolumeDevices) > 0 && s.HostUsers != nil && !*s.HostUsers {
				// A device cannot be mapped to the users of the pod.
				errs = append(errs, field.Forbidden(at.Child("volumeDevices"), "when `hostUsers` is false"))
			}
		}
	}
	return errs
}

func container(c *v1.Container, volumes []v1.Volume, path *field.Path) field.ErrorList {
	errs := both(c, path)
	names, paths := map[string]bool{}, map[string]bool{}
	for i, d := range c.VolumeDevices {
		at := path.Child("volumeDevices").Index(i)
		switch of := slices.IndexFunc(volumes, func(v v1.Volume) bool { return v.Name == d.Name }); {
		case d.Name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		case names[d.Name]:
			errs = append(errs, field.Invalid(at.Child("name"), d.Name, "must be unique"))
		case of < 0:
			errs = append(errs, field.NotFound(at.Child("name"), d.Name))
		case volumes[of].PersistentVolumeClaim == nil:
			errs = append(errs, field.Invalid(at.Child("name"), d.Name, "must be a persistentVolumeClaim"))
		}
		switch {
		case d.DevicePath == "":
			errs = append(errs, field.Required(at.Child("devicePath"), ""))
		case paths[d.DevicePath]:
			errs = append(errs, field.Invalid(at.Child("devicePath"), d.DevicePath, "must be unique"))
		case slices.Contains(strings.Split(d.DevicePath, "/"), ".."):
			errs = append(errs, field.Invalid(at.Child("devicePath"), d.DevicePath, "must not contain '..'"))
		case !strings.HasPrefix(d.DevicePath, "/"):
			errs = append(errs, field.Invalid(at.Child("devicePath"), d.DevicePath, "must be an absolute path"))
		}
		names[d.Name], paths[d.DevicePath] = true, true
	}
	return errs
}

// both refuses volumes and paths that are among the devices and among the mounts.
func both(c *v1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, d := range c.VolumeDevices {
		for j, m := range c.VolumeMounts {
			device, mount := path.Child("volumeDevices").Index(i), path.Child("volumeMounts").Index(j)
			if d.Name != "" && d.Name == m.Name {
				errs = append(errs, field.Invalid(device.Child("name"), d.Name, "must not be in volumeMounts too"),
					field.Invalid(mount.Child("name"), m.Name, "must not be in volumeDevices too"))
			}
			if d.DevicePath != "" && d.DevicePath == m.MountPath {
				errs = append(errs,
					field.Invalid(device.Child("devicePath"), d.DevicePath, "must not be a mountPath too"),
					field.Invalid(mount.Child("mountPath"), m.MountPath, "must not be a devicePath too"))
			}
		}
	}
	return errs
}
