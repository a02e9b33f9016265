package volume

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/volume/csi"
)

// readyCSI makes a CSI driver mount an inline volume.
func (v *Volumes) readyCSI(ctx context.Context, in pod.Inside, name string, s *v1.CSIVolumeSource) (source, error) {
	// The pod's own directory shows, as long as it exists, that the volume is in use.
	root, err := v.openPod(in.Pod.UID)
	if err != nil {
		return source{}, err
	}
	defer root.Close()
	r, err := inlineRequest(in, name, s)
	if err != nil {
		return source{}, err
	}
	p, err := v.csi.Publish(ctx, r)
	if err != nil {
		return source{}, err
	}
	if p.Ownable {
		err = v.ownOnce(ctx, in.Pod, "csi/"+name, p.Path)
	}
	return source{path: p.Path, readOnly: p.ReadOnly}, err
}

// inlineRequest returns what a CSI driver is asked for.
func inlineRequest(in pod.Inside, name string, s *v1.CSIVolumeSource) (csi.Request, error) {
	r := csi.Request{Pod: in.Pod, Volume: name, Source: s, Driver: in.Objects.CSIDrivers[s.Driver]}
	if s.NodePublishSecretRef == nil {
		return r, nil
	}
	secret := in.Objects.Secrets[pod.Key{Namespace: in.Pod.Namespace, Name: s.NodePublishSecretRef.Name}]
	if secret == nil {
		return r, fmt.Errorf("secret %q not found", s.NodePublishSecretRef.Name)
	}
	r.Secrets = map[string]string{}
	for key, value := range secret.Data {
		r.Secrets[key] = string(value)
	}
	return r, nil
}

// renewCSI replaces what CSI drivers are asked for again, of a running pod.
func renewCSI(drivers *csi.Drivers, in pod.Inside) {
	for _, volume := range in.Pod.Spec.Volumes {
		if volume.CSI == nil {
			continue
		}
		if r, err := inlineRequest(in, volume.Name, volume.CSI); err == nil {
			drivers.Renew(r)
		}
	}
}
