// Package volume readies what a container mounts: its volumes, and the files under /etc that podrun
// provides. It checks and makes sources on the host; it mounts nothing and removes nothing. A pod's
// volumes go with its data directory, which this room does not own.
package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// Options are what Volumes need.
type Options struct {
	Dirs layout.Dirs
	// HostRoot is where the host's own /etc is read; "" means "/".
	HostRoot string
	// ClusterDNS are the servers for pods with dnsPolicy ClusterFirst; none: those of the host.
	ClusterDNS []string
	// ClusterDomain ends pods' full names.
	ClusterDomain string
	// Neighbours tells what names a pod can find others by; nil: none.
	Neighbours func(p *v1.Pod) []pod.HostEntry
}

// Volumes readies the mounts of one root directory's pods.
type Volumes struct {
	dirs          layout.Dirs
	host          string
	clusterDNS    []string
	clusterDomain string
	neighbours    func(p *v1.Pod) []pod.HostEntry
	mu            sync.Mutex // held while a pod's own directory is written
}

// New returns the volumes; it touches nothing yet.
func New(o Options) *Volumes {
	if o.HostRoot == "" {
		o.HostRoot = "/"
	}
	return &Volumes{
		dirs: o.Dirs, host: o.HostRoot, clusterDNS: o.ClusterDNS, clusterDomain: o.ClusterDomain, neighbours: o.Neighbours,
	}
}

// reasonFailed is how a status shows that a volume is not ready.
const reasonFailed = "FailedMount"

// Setup readies all that c mounts and returns the mounts in the order to make them: an outer directory
// before what is mounted in it. It may be called at every start; what containers wrote into an emptyDir
// stays. The error is a *runtime.ReasonError; it may be gone when asked again.
func (v *Volumes) Setup(ctx context.Context, p *v1.Pod, c *v1.Container, sandbox pod.Sandbox) ([]runtime.Mount, error) {
	mounts, err := v.setup(ctx, p, c, sandbox)
	if err != nil {
		return nil, &runtime.ReasonError{Reason: reasonFailed, Err: err}
	}
	return mounts, nil
}

func (v *Volumes) setup(ctx context.Context, p *v1.Pod, c *v1.Container, sandbox pod.Sandbox) ([]runtime.Mount, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(c.VolumeDevices) > 0 {
		return nil, fmt.Errorf("volume device %q: volumeDevices are not supported", c.VolumeDevices[0].Name)
	}
	var own []runtime.Mount
	sources := map[string]string{} // by volume, readied once however often it is mounted
	for _, m := range c.VolumeMounts {
		if err := checkMount(m); err != nil {
			return nil, err
		}
		source, ok := sources[m.Name]
		if !ok {
			var err error
			if source, err = v.ready(p, m.Name); err != nil {
				return nil, fmt.Errorf("MountVolume.SetUp failed for volume %q: %w", m.Name, err)
			}
			sources[m.Name] = source
		}
		own = append(own, runtime.Mount{HostPath: source, ContainerPath: path.Join("/", m.MountPath), ReadOnly: m.ReadOnly})
	}
	mounts, err := v.managed(p, c, sandbox)
	if err != nil {
		return nil, err
	}
	mounts = slices.DeleteFunc(mounts, func(m runtime.Mount) bool {
		return slices.ContainsFunc(own, func(o runtime.Mount) bool { return o.ContainerPath == m.ContainerPath })
	})
	mounts = append(mounts, own...)
	slices.SortStableFunc(mounts, func(a, b runtime.Mount) int { return depth(a.ContainerPath) - depth(b.ContainerPath) })
	return mounts, nil
}

// checkMount refuses what is not supported, rather than leave it out.
func checkMount(m v1.VolumeMount) error {
	switch {
	case m.SubPath != "" || m.SubPathExpr != "":
		return fmt.Errorf("mount of volume %q at %s: subPath is not supported", m.Name, m.MountPath)
	case m.MountPropagation != nil && *m.MountPropagation != v1.MountPropagationNone:
		return fmt.Errorf("mount of volume %q at %s: mountPropagation %s is not supported", m.Name, m.MountPath, *m.MountPropagation)
	case m.RecursiveReadOnly != nil && *m.RecursiveReadOnly != v1.RecursiveReadOnlyDisabled:
		return fmt.Errorf("mount of volume %q at %s: recursiveReadOnly %s is not supported", m.Name, m.MountPath, *m.RecursiveReadOnly)
	}
	return nil
}

// ready makes or checks the source of the pod's volume and returns its path on the host.
func (v *Volumes) ready(p *v1.Pod, name string) (string, error) {
	i := slices.IndexFunc(p.Spec.Volumes, func(o v1.Volume) bool { return o.Name == name })
	if i < 0 {
		return "", errors.New("the pod has no such volume")
	}
	source := p.Spec.Volumes[i].VolumeSource
	switch {
	case source.HostPath != nil:
		return readyHostPath(source.HostPath)
	case source == (v1.VolumeSource{}): // Kubernetes takes a volume without a source for an emptyDir
		return v.readyEmptyDir(p, name, &v1.EmptyDirVolumeSource{})
	case source.EmptyDir != nil:
		return v.readyEmptyDir(p, name, source.EmptyDir)
	}
	return "", errors.New("only emptyDir and hostPath volumes are supported")
}

// readyEmptyDir makes the directory unless it is there.
func (v *Volumes) readyEmptyDir(p *v1.Pod, name string, e *v1.EmptyDirVolumeSource) (string, error) {
	if e.Medium != v1.StorageMediumDefault {
		return "", fmt.Errorf("emptyDir: medium %q is not supported", e.Medium)
	}
	if !isComponent(name) {
		return "", fmt.Errorf("emptyDir: %q cannot be a directory's name", name)
	}
	dir := v.dirs.EmptyDir(p.UID, name)
	v.mu.Lock()
	defer v.mu.Unlock()
	root, err := v.openPod(p.UID)
	if err != nil {
		return "", err
	}
	defer root.Close()
	within, err := filepath.Rel(v.dirs.Pod(p.UID), dir)
	if err != nil {
		return "", err
	}
	info, err := root.Lstat(within)
	if err == nil && !info.IsDir() {
		return "", fmt.Errorf("emptyDir: %s is not a directory", dir)
	}
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return dir, err
	}
	return dir, makeShared(root, within)
}

// makeShared makes a directory that every user may write to. It gets its name last, so that one with
// that name has its mode, and whatever mode its users gave it later stays.
func makeShared(root *os.Root, dir string) error {
	if err := root.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	fresh := filepath.Join(filepath.Dir(dir), ".new")
	if err := root.Mkdir(fresh, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := root.Chmod(fresh, 0o777); err != nil { // apart, because the umask takes bits of Mkdir's away
		return err
	}
	return root.Rename(fresh, dir)
}

// openPod opens the revision's own directory, making it if need be. What is done through it cannot be
// led out of it by symbolic links.
func (v *Volumes) openPod(uid pod.UID) (*os.Root, error) {
	if !isComponent(string(uid)) {
		return nil, fmt.Errorf("the pod's uid %q cannot be a directory's name", uid)
	}
	if err := os.MkdirAll(v.dirs.Pods(), 0o755); err != nil {
		return nil, err
	}
	dir := v.dirs.Pod(uid)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return nil, errors.Join(err, fmt.Errorf("%s is not a directory", dir))
	}
	return os.OpenRoot(dir)
}

// isComponent reports that name is one component of a path.
func isComponent(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00")
}

func depth(p string) int {
	if p == "/" {
		return 0
	}
	return strings.Count(p, "/")
}
