package volume

import (
	"context"
	"log/slog"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/volume/csi"
	"podrun.io/podrun/internal/volume/fsgroup"
)

// readyCSI makes a CSI driver mount a volume.
func readyCSI(ctx context.Context, v *Volumes, in pod.Inside, r csi.Request) (source, error) {
	// The pod's own directory shows, as long as it exists, that the volume is in use.
	root, err := v.openPod(in.Pod.UID)
	if err != nil {
		return source{}, err
	}
	defer root.Close()
	p, err := v.csi.Publish(ctx, r)
	return source{path: p.Path, readOnly: p.ReadOnly, foreign: true}, err
}

// ownInline gives a volume that a CSI driver has mounted to the pod's group. A driver may mount what nobody can give
// away, such as a file system that is read-only or another machine's: as in the kubelet that is no reason not to start.
func ownInline(ctx context.Context, p *v1.Pod, path string, log *slog.Logger) error {
	if fsgroup.Of(p) == nil {
		return nil
	}
	dir, err := sys.OpenTree(path)
	if err == nil {
		defer dir.Close()
		err = fsgroup.Give(ctx, dir, p)
	}
	if err != nil && ctx.Err() == nil {
		warnOfGroup(log, p, err)
		return nil
	}
	return err
}

// warnOfGroup warns that a volume cannot be given to the pod's group.
func warnOfGroup(log *slog.Logger, p *v1.Pod, err error) {
	log.Warn("a volume is not given to the pod's fsGroup, or not all of it",
		"pod", pod.KeyOf(p).String(), "group", *fsgroup.Of(p), "err", err)
}

// renewCSI replaces what CSI drivers are asked for again, of a running pod.
func renewCSI(ctx context.Context, v *Volumes, in pod.Inside) {
	for i := range in.Pod.Spec.Volumes {
		volume := &in.Pod.Spec.Volumes[i]
		if volume.CSI != nil {
			v.csi.Renew(csi.InlineRequest(in, volume))
		}
		if volume.PersistentVolumeClaim != nil {
			pv, err := v.provisioner.Bound(ctx, in, volume, false)
			if err == nil && pv != nil && pv.Spec.CSI != nil {
				v.csi.Renew(csi.PersistentRequest(in, volume, pv))
			}
		}
	}
}
