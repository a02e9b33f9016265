package volume

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/volume/csi"
	"podrun.io/podrun/internal/volume/persistent"
)

// readyPersistent readies the volume of a claim: a PersistentVolume, or a directory. What a driver has mounted for the
// pod stays, whatever becomes of the documents.
func readyPersistent(ctx context.Context, v *Volumes, in pod.Inside, volume *v1.Volume) (source, error) {
	c := volume.PersistentVolumeClaim
	p, name, err := v.csi.Retained(in.Pod.UID, c.ClaimName)
	pv, unbound := v.provisioner.Bound(ctx, in, volume, name == "" && err == nil)
	has, block := name != "" && err == nil, pv != nil && persistent.IsBlock(pv.Spec.VolumeMode)
	if has {
		block = p.Block
	}
	if err := persistent.UsedAs(in.Container, volume.Name, block); err != nil && (has || unbound == nil) {
		return source{}, err
	}
	switch same := pv != nil && pv.Spec.CSI != nil && pv.Name == name; {
	case has && !same:
		return source{path: p.Path, readOnly: p.ReadOnly || c.ReadOnly, foreign: true}, nil
	case unbound != nil && name != "":
		return source{}, fmt.Errorf("%w; %w", err, unbound)
	case unbound != nil:
		return source{}, unbound
	case pv == nil && err != nil:
		return source{}, err
	case pv == nil:
		return readyClaim(ctx, v, in.Pod, c)
	case pv.Spec.HostPath != nil:
		path, err := readyHostPath(pv.Spec.HostPath)
		return source{path: path, readOnly: c.ReadOnly, foreign: true, ofHost: true}, err
	case pv.Spec.NFS != nil:
		export := *pv.Spec.NFS
		export.ReadOnly = export.ReadOnly || c.ReadOnly
		path, err := v.readyNFS(ctx, in.Pod, volume.Name, &export)
		return source{path: path, readOnly: export.ReadOnly, noDev: true}, err
	}
	s, err := readyCSI(ctx, v, in, csi.PersistentRequest(in, volume, pv))
	s.readOnly = s.readOnly || c.ReadOnly // another volume of the pod may have the claim writable
	return s, err
}
