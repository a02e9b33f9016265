// Package disk measures what pods take of the machine's disk, and keeps which of them were ended for it. It
// judges no limit and ends nothing.
package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
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
	return out, nil
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

// size is how much of the disk the files below dir take, each once however many names it has. Links are not
// followed, and what is mounted there is not counted. A directory that is not there takes nothing.
func size(ctx context.Context, dir string) (pod.Space, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return pod.Space{}, nil
	}
	if err != nil {
		return pod.Space{}, err
	}
	defer root.Close()
	var total pod.Space
	var dev uint64
	seen := map[uint64]bool{}
	err = fs.WalkDir(root.FS(), ".", func(_ string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var info fs.FileInfo
		if err == nil {
			info, err = d.Info()
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it went away meanwhile
		}
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return nil
		}
		if dev == 0 {
			dev = st.Dev
		}
		switch {
		case st.Dev != dev && d.IsDir():
			return fs.SkipDir
		case st.Dev != dev || st.Nlink > 1 && !d.IsDir() && seen[st.Ino]:
			return nil
		}
		if st.Nlink > 1 {
			seen[st.Ino] = true
		}
		total = total.Add(pod.Space{Bytes: st.Blocks * 512, Files: 1})
		return nil
	})
	return total, err
}
