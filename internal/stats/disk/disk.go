// Package disk measures what pods take of the machine's disk, and keeps which of them were ended for it. It
// judges no limit and ends nothing.
package disk

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/sys"
)

// Meter measures the pods of one podrun.
type Meter struct {
	dirs   layout.Dirs
	layers runtime.Layers
}

// New returns a meter; layers measures root filesystems.
func New(dirs layout.Dirs, layers runtime.Layers) *Meter { return &Meter{dirs: dirs, layers: layers} }

// Measure returns what p takes of all that its limits are for. instances are its containers' newest ones.
// It reads directories as large as the pod made them, which takes time.
func (m *Meter) Measure(ctx context.Context, p *v1.Pod, instances []pod.Container) (pod.Usage, error) {
	limits := pod.StorageLimitsOf(p)
	out := pod.Usage{Volumes: map[string]int64{}, Containers: map[string]int64{}}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if _, limited := limits.Volumes[v.Name]; !pod.OnDisk(v) || !limited && limits.Whole == nil {
			continue
		}
		used, err := size(ctx, m.dirs.EmptyDir(p.UID, v.Name))
		if err != nil {
			return pod.Usage{}, fmt.Errorf("measuring volume %q: %w", v.Name, err)
		}
		out.Volumes[v.Name] = used.Bytes
	}
	if limits.Whole == nil {
		return out, nil
	}
	for _, c := range pod.AllContainers(p) {
		used, err := m.container(ctx, p, c.Name, instances)
		if err != nil {
			return pod.Usage{}, fmt.Errorf("measuring container %s: %w", c.Name, err)
		}
		out.Containers[c.Name] = used.Bytes
	}
	etc, err := m.etc(ctx, p)
	if err != nil {
		return pod.Usage{}, fmt.Errorf("measuring the files under /etc: %w", err)
	}
	out.Etc = etc.Bytes
	return out, nil
}

// etc is what the files take that podrun provides in the pod's containers. They can be written as volumes can.
func (m *Meter) etc(ctx context.Context, p *v1.Pod) (pod.Space, error) {
	now, err := size(ctx, m.dirs.Etc(p.UID))
	if err != nil {
		return pod.Space{}, err
	}
	legacy, err := size(ctx, m.dirs.LegacyEtc(p.UID))
	return now.Add(legacy), err
}

// container is what the logs of all instances of a container take, and the root filesystem of its newest.
func (m *Meter) container(ctx context.Context, p *v1.Pod, name string, instances []pod.Container) (pod.Space, error) {
	total, err := m.logs(ctx, p, name)
	if i := slices.IndexFunc(instances, func(c pod.Container) bool { return c.Name == name }); err == nil && i >= 0 {
		var used pod.Space
		used, err = m.layers.LayerSize(ctx, instances[i].ID)
		total = total.Add(used)
	}
	return total, err
}

// logs is what the logs of all instances of a container take.
func (m *Meter) logs(ctx context.Context, p *v1.Pod, name string) (pod.Space, error) {
	// What it wrote is in the raw logs until it is in the others.
	dirs, err := filepath.Glob(filepath.Join(m.dirs.Pod(p.UID), "log."+name+".*"))
	if err != nil {
		return pod.Space{}, err
	}
	var total pod.Space
	for _, dir := range append(dirs, filepath.Dir(m.dirs.ContainerLog(pod.KeyOf(p), p.UID, name, 0))) {
		used, err := size(ctx, dir)
		if err != nil {
			return pod.Space{}, err
		}
		total = total.Add(used)
	}
	return total, nil
}

// size is how much of the disk a directory takes; nothing if it is not there.
func size(ctx context.Context, dir string) (pod.Space, error) {
	bytes, files, err := sys.TreeSize(ctx, dir)
	return pod.Space{Bytes: bytes, Files: files}, err
}
