package disk

import (
	"context"
	"errors"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
)

// Usage is what a pod takes, part by part.
type Usage struct {
	// Roots are containers' own parts of their root filesystems, Logs what all their instances wrote, by
	// container.
	Roots, Logs map[string]pod.Space
	// Volumes are those that podrun keeps, by name.
	Volumes map[string]pod.Space
	// Etc are the files that podrun provides in the containers, such as /etc/hosts.
	Etc pod.Space
}

// Usage measures all of p that is podrun's: not what is on the host or on other machines. Where a part cannot
// be measured it is left out, and the error says why. It reads directories as large as the pod made them.
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
		if dir := m.VolumeDir(p, v); dir != "" {
			used, err := size(ctx, dir)
			note(out.Volumes, v.Name, used, err)
		}
	}
	return out, errors.Join(failed...)
}

// VolumeDir is where podrun keeps a volume; "": it is none of those that it keeps.
func (m *Meter) VolumeDir(p *v1.Pod, v *v1.Volume) string {
	switch {
	case v.EmptyDir != nil:
		return m.dirs.EmptyDir(p.UID, v.Name)
	case v.ConfigMap != nil:
		return m.dirs.Volume(p.UID, layout.KindConfigMap, v.Name)
	case v.Secret != nil:
		return m.dirs.Volume(p.UID, layout.KindSecret, v.Name)
	case v.DownwardAPI != nil:
		return m.dirs.Volume(p.UID, layout.KindDownwardAPI, v.Name)
	case v.Projected != nil:
		return m.dirs.Volume(p.UID, layout.KindProjected, v.Name)
	case v.PersistentVolumeClaim != nil:
		return m.dirs.Claim(p.Namespace, v.PersistentVolumeClaim.ClaimName)
	}
	return ""
}
