package disk

import (
	"context"
	"errors"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
)

// Usage is the disk usage of a pod by part.
type Usage struct {
	// Roots are the sizes of running containers' writable layers, and Logs those of the logs of all
	// their instances, by container name.
	Roots, Logs map[string]pod.Space
	// Volumes are the sizes of the volumes that podrun stores, without claims, by volume name.
	Volumes map[string]pod.Space
	// Etc is the size of the files that podrun provides in the containers, such as /etc/hosts.
	Etc pod.Space
}

// Usage measures everything of p that podrun stores, but nothing that is elsewhere on the host or
// on other machines, and no claims, whose file systems may not answer. A part that cannot be measured is left out, and
// the error says why. The duration grows with the size of the pod's directories.
func (m *Meter) Usage(ctx context.Context, p *v1.Pod) (Usage, error) {
	out := Usage{Roots: map[string]pod.Space{}, Logs: map[string]pod.Space{}, Volumes: map[string]pod.Space{}}
	var failed []error
	note := func(into map[string]pod.Space, name string, used pod.Space, err error) {
		if err != nil {
			failed = append(failed, err)
			return
		}
		into[name] = used
	}
	for _, all := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, c := range all {
			if c.State.Running == nil {
				continue
			}
			_, id, _ := strings.Cut(c.ContainerID, "://")
			used, err := m.layers.LayerSize(ctx, id)
			note(out.Roots, c.Name, used, err)
			used, err = m.logs(ctx, p, c.Name)
			note(out.Logs, c.Name, used, err)
		}
	}
	var err error
	if out.Etc, err = m.etc(ctx, p); err != nil {
		failed = append(failed, err)
	}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if dir := m.VolumeDir(p, v); dir != "" && v.PersistentVolumeClaim == nil {
			used, err := Size(ctx, dir)
			note(out.Volumes, v.Name, used, err)
		}
	}
	return out, errors.Join(failed...)
}

// VolumeDir returns the directory in which podrun stores a volume; "" if podrun does not store
// volumes of its kind.
func (m *Meter) VolumeDir(p *v1.Pod, v *v1.Volume) string {
	switch {
	case v.EmptyDir != nil:
		return m.dirs.Revision(p.UID).EmptyDir(v.Name)
	case v.ConfigMap != nil:
		return m.dirs.Revision(p.UID).Volume(layout.KindConfigMap, v.Name)
	case v.Secret != nil:
		return m.dirs.Revision(p.UID).Volume(layout.KindSecret, v.Name)
	case v.DownwardAPI != nil:
		return m.dirs.Revision(p.UID).Volume(layout.KindDownwardAPI, v.Name)
	case v.Projected != nil:
		return m.dirs.Revision(p.UID).Volume(layout.KindProjected, v.Name)
	case v.PersistentVolumeClaim != nil:
		return m.dirs.Claim(p.Namespace, v.PersistentVolumeClaim.ClaimName)
	}
	return ""
}
