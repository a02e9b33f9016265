// Package disk measures the disk usage of pods: emptyDirs and other volumes that podrun stores,
// writable layers, logs and the files that podrun provides under /etc.
//
// It compares nothing with limits and evicts nothing: package plan does the former, package
// reconcile the latter. Begin reading at [Meter].
package disk

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/volume/directory"
)

// Meter measures the pods whose data are in its directories.
type Meter struct {
	dirs   layout.Dirs
	layers runtime.Layers
}

// New returns a Meter; layers measures the writable layers of containers.
func New(dirs layout.Dirs, layers runtime.Layers) *Meter { return &Meter{dirs: dirs, layers: layers} }

// Measure returns the usage that p's limits apply to. Without limits the result is empty. instances
// are the newest ones of p's containers. The duration grows with the size of the pod's directories.
func (m *Meter) Measure(ctx context.Context, p *v1.Pod, instances []pod.Container) (pod.Usage, error) {
	limits := pod.StorageLimitsOf(p)
	out := pod.Usage{Volumes: map[string]int64{}, Containers: map[string]int64{}}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if _, limited := limits.Volumes[v.Name]; !pod.Counts(v) || !limited && limits.Whole == nil {
			continue
		}
		used, err := Size(ctx, m.VolumeDir(p, v))
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

// etc returns the size of the files that podrun provides in the pod's containers. Containers can
// write to them as to volumes.
func (m *Meter) etc(ctx context.Context, p *v1.Pod) (pod.Space, error) {
	now, err := Size(ctx, m.dirs.Revision(p.UID).Etc())
	if err != nil {
		return pod.Space{}, err
	}
	legacy, err := Size(ctx, m.dirs.Legacy().Etc(p.UID))
	return now.Add(legacy), err
}

// container returns the size of the logs of all instances of a container and of the writable layer
// of its newest instance.
func (m *Meter) container(ctx context.Context, p *v1.Pod, name string, instances []pod.Container) (pod.Space, error) {
	total, err := m.logs(ctx, p, name)
	if i := slices.IndexFunc(instances, func(c pod.Container) bool { return c.Name == name }); err == nil && i >= 0 {
		var used pod.Space
		used, err = m.layers.LayerSize(ctx, instances[i].ID)
		total = total.Add(used)
	}
	return total, err
}

// logs returns the size of the logs of all instances of a container.
func (m *Meter) logs(ctx context.Context, p *v1.Pod, name string) (pod.Space, error) {
	// Output is in the raw logs until it has been converted.
	dirs, err := filepath.Glob(filepath.Join(m.dirs.Pod(p.UID), "log."+name+".*"))
	if err != nil {
		return pod.Space{}, err
	}
	var total pod.Space
	for _, dir := range append(dirs, filepath.Dir(m.dirs.ContainerLog(pod.KeyOf(p), p.UID, name, 0))) {
		used, err := Size(ctx, dir)
		if err != nil {
			return pod.Space{}, err
		}
		total = total.Add(used)
	}
	return total, nil
}

// Size returns the size of a directory; 0 if it does not exist.
func Size(ctx context.Context, dir string) (pod.Space, error) {
	bytes, files, err := sys.TreeSize(ctx, dir)
	return pod.Space{Bytes: bytes, Files: files}, err
}

// ClaimSize is Size for the directory of a claim, which others may have replaced by a link.
func (m *Meter) ClaimSize(ctx context.Context, dir string) (pod.Space, error) {
	claim := pod.Key{Namespace: filepath.Base(filepath.Dir(dir)), Name: filepath.Base(dir)}
	at, err := directory.OpenClaim(m.dirs, claim, unix.O_PATH)
	if err != nil {
		return pod.Space{}, err
	}
	defer at.Close()
	return Size(ctx, sys.FDPath(int(at.Fd()))+"/.")
}
