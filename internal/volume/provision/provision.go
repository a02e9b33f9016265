// Package provision makes CSI drivers make the volumes of claims whose StorageClass names a driver, and delete them
// when their user says so. What a driver is asked for is recorded before it is asked, under a name of its own, so that
// it makes one volume for a claim whatever is killed in between; afterwards the record says what the claim's volume is,
// and not the documents. The package mounts nothing: a volume that was made is a PersistentVolume for others.
//
// Begin reading at Provisioner.Bound.
package provision

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/pod/storageclass"
	"podrun.io/podrun/internal/volume/csi"
	"podrun.io/podrun/internal/volume/directory"
	"podrun.io/podrun/internal/volume/persistent"
)

// Provisioner finds the volumes of claims, and has them made. Its methods may be called concurrently.
type Provisioner struct {
	Dirs    layout.Dirs
	Drivers *csi.Drivers
	// Plugins is set if drivers can register.
	Plugins bool
}

// Bound returns the PersistentVolume of the claim that a pod's volume names: the one that was made for it, the one of
// the documents, or, if make is set, one that is made now. It is nil if the claim is a directory. An error may be
// temporary.
func (p *Provisioner) Bound(
	ctx context.Context, in pod.Inside, volume *v1.Volume, make bool,
) (*v1.PersistentVolume, error) {
	key := pod.Key{Namespace: in.Pod.Namespace, Name: volume.PersistentVolumeClaim.ClaimName}
	made, found, err := Read(p.Dirs, key)
	switch {
	case err != nil:
		return nil, err
	case found && made.Deleting:
		return nil, isDeleted(key, made.Driver)
	case found && made.Handle != "":
		return made.persistentVolume(), nil
	}
	bound, err := persistent.Bound(in.Objects, key, func(claim pod.Key, volume string) (bool, error) {
		b, _, err := ReadBinding(p.Dirs, claim)
		return b.Name == volume, err
	})
	switch {
	case err != nil || !make:
		return bound, err
	case bound != nil:
		if err := p.keepsDirectory(key, bound.Name); err != nil {
			return nil, err
		}
		return bound, bind(p.Dirs, key, bound)
	}
	if err := lost(p.Dirs, key); err != nil {
		return nil, err
	}
	wanted, err := p.wanted(in.Objects, key, found)
	switch {
	case err != nil:
		return nil, err
	case found && wanted.Driver != "" && wanted.Driver != made.Driver:
		return nil, fmt.Errorf("the driver %s may have made a volume %s for the claim %s, whose StorageClass names %s now; "+
			"%s, when no pod has the claim, forgets it", made.Driver, made.Name, key, wanted.Driver, Command(key))
	case wanted.Driver == "" && !found:
		return nil, nil
	case wanted.Driver == "":
		wanted = made
	case in.Objects.Partial:
		return nil, fmt.Errorf("not all manifests can be read: one may have the PersistentVolume of the claim %s, "+
			"for which none was made yet", key)
	}
	if err := p.create(ctx, in, volume, wanted); err != nil {
		return nil, err
	}
	made, _, err = Read(p.Dirs, key)
	if err == nil && made.Handle == "" {
		err = fmt.Errorf("the volume of the claim %s was removed while it was made", key)
	}
	if err != nil {
		return nil, err
	}
	return made.persistentVolume(), nil
}

// wanted returns what a driver is to be asked for; without a driver if the claim is a directory, or nothing more is
// known of one whose volume may have been made.
func (p *Provisioner) wanted(all pod.Objects, key pod.Key, begun bool) (Volume, error) {
	claim := all.Claims[key]
	if claim == nil {
		return Volume{}, nil
	}
	if !begun {
		// What a claim has in its directory it keeps, whatever its class is by now.
		if is, err := isDirectory(p.Dirs, key); is || err != nil {
			return Volume{}, err
		}
	}
	class, err := storageclass.Of(all.Classes, claim)
	name := claim.Spec.StorageClassName
	if err == nil && class == nil && name != nil && *name != "" && p.Plugins && !begun {
		err = fmt.Errorf("the PersistentVolumeClaim %q names the StorageClass %q, which no manifest has; with "+
			"--pod-security baseline or restricted, podrun uses no StorageClasses", key.Name, *name)
	}
	isDriver := class != nil && class.IsDriver()
	if err == nil && !isDriver && !begun && persistent.IsBlock(claim.Spec.VolumeMode) {
		err = fmt.Errorf("the PersistentVolumeClaim %q has volumeMode Block, and no PersistentVolume", key.Name)
	}
	if err != nil || !isDriver {
		return Volume{}, err
	}
	return newVolume(key, &claim.Spec, class)
}

// isDeleted returns the error of a pod that waits for the end of a removal.
func isDeleted(claim pod.Key, driver string) error {
	return fmt.Errorf("the volume of the claim %s is being deleted; if that does not end, run %s again when the driver %s "+
		"is back: then the pod gets a new volume", claim, Command(claim), driver)
}

// keepsDirectory returns an error if the claim has data in its directory and had no PersistentVolume before, as when
// its PersistentVolume comes after the pod has started: a container that starts again would have another volume than
// the pod's others.
func (p *Provisioner) keepsDirectory(claim pod.Key, volume string) error {
	if _, had, err := ReadBinding(p.Dirs, claim); had || err != nil {
		return err
	}
	if err := CheckMounted(p.Dirs, claim); err != nil {
		return err
	}
	if has, err := directory.HasData(p.Dirs, claim); !has || err != nil {
		return err
	}
	return fmt.Errorf("the claim %s has data in %s, and the manifests have the PersistentVolume %q for it now: move the data "+
		"there and remove the directory, or remove the PersistentVolume", claim, p.Dirs.Claim(claim.Namespace, claim.Name), volume)
}

// isDirectory reports whether the claim has a directory.
func isDirectory(dirs layout.Dirs, claim pod.Key) (bool, error) {
	if err := CheckMounted(dirs, claim); err != nil {
		return false, err
	}
	return directory.HasClaim(dirs, claim)
}

// create makes the driver make the volume, and waits for it for some seconds.
func (p *Provisioner) create(ctx context.Context, in pod.Inside, volume *v1.Volume, v Volume) error {
	r := csi.PersistentRequest(in, volume, v.persistentVolume())
	r.Source.VolumeAttributes = v.Parameters
	r.Secrets = nil
	if r.Lacks == nil {
		r.Secrets, r.Lacks = persistent.SecretOf(in.Objects, v.ControllerSecret)
	}
	name := ""
	return csi.Creation{
		Request: r, Key: v.Key().String(), // two pods do not make two of them
		Volume: func() (string, error) {
			kept, err := begin(p.Dirs, v)
			name = kept.Name
			return name, err
		},
		Smallest: v.Smallest, Largest: v.Largest,
		Made: func(c csi.Created) error { return complete(p.Dirs, v.Key(), name, c) },
	}.By(ctx, p.Drivers)
}

// newVolume returns the volume that a claim of a class is to have.
func newVolume(key pod.Key, s *v1.PersistentVolumeClaimSpec, c *storageclass.Class) (Volume, error) {
	v := Volume{
		Namespace: key.Namespace, Claim: key.Name, Name: "pvc-" + uuid.NewString(),
		Class: c.Name, Driver: c.Provisioner, Made: time.Now(),
		Asked: Asked{
			Modes: s.AccessModes, MountOptions: c.MountOptions, Block: persistent.IsBlock(s.VolumeMode),
		},
		Retain: c.ReclaimPolicy != nil && *c.ReclaimPolicy == v1.PersistentVolumeReclaimRetain,
	}
	if size, given := s.Resources.Requests[v1.ResourceStorage]; given {
		v.Smallest = size.Value()
	}
	if size, given := s.Resources.Limits[v1.ResourceStorage]; given {
		v.Largest = size.Value()
	}
	return v, v.parameters(c.Parameters)
}
