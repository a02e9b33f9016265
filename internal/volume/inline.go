package volume

import (
	"context"
	"fmt"
	"log/slog"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/volume/csi"
)

// readyCSI makes a CSI driver mount an inline volume.
func readyCSI(ctx context.Context, v *Volumes, in pod.Inside, volume *v1.Volume) (source, error) {
	// The pod's own directory shows, as long as it exists, that the volume is in use.
	root, err := v.openPod(in.Pod.UID)
	if err != nil {
		return source{}, err
	}
	defer root.Close()
	p, err := v.csi.Publish(ctx, inlineRequest(in, volume.Name, volume.CSI))
	return source{path: p.Path, readOnly: p.ReadOnly, foreign: true}, err
}

// inlineRequest returns what a CSI driver is asked for.
func inlineRequest(in pod.Inside, name string, s *v1.CSIVolumeSource) csi.Request {
	r := csi.Request{Pod: in.Pod, Volume: name, Source: s, Driver: in.Objects.CSIDrivers[s.Driver]}
	if s.NodePublishSecretRef == nil {
		return r
	}
	secret := in.Objects.Secrets[pod.Key{Namespace: in.Pod.Namespace, Name: s.NodePublishSecretRef.Name}]
	if secret == nil {
		r.Lacks = fmt.Errorf("secret %q not found", s.NodePublishSecretRef.Name)
		return r
	}
	r.Secrets = map[string]string{}
	for key, value := range secret.Data {
		r.Secrets[key] = string(value)
	}
	return r
}

// ownInline gives a volume that a CSI driver has mounted to the pod's group. A driver may mount what nobody can give
// away, such as a file system that is read-only or another machine's: as in the kubelet that is no reason not to start.
func ownInline(ctx context.Context, p *v1.Pod, path string, log *slog.Logger) error {
	if fsGroup(p) == nil {
		return nil
	}
	dir, err := sys.OpenTree(path)
	if err == nil {
		defer dir.Close()
		err = giveTo(ctx, dir, p)
	}
	if err != nil && ctx.Err() == nil {
		log.Warn("a CSI driver's volume is not given to the pod's fsGroup",
			"pod", pod.KeyOf(p).String(), "group", *fsGroup(p), "err", err)
		return nil
	}
	return err
}

// renewCSI replaces what CSI drivers are asked for again, of a running pod.
func renewCSI(drivers *csi.Drivers, in pod.Inside) {
	for _, volume := range in.Pod.Spec.Volumes {
		if volume.CSI == nil {
			continue
		}
		drivers.Renew(inlineRequest(in, volume.Name, volume.CSI))
	}
}
