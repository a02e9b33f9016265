// Package volume prepares what a container mounts: the volumes of its pod, and the files under /etc
// that podrun manages. It checks, creates and fills their sources on the host, and unmounts what it
// mounted itself.
//
// It does not delete a pod's volumes: they are removed together with the pod's data directory,
// which this package does not own. Only RemoveClaim deletes a volume, one of a
// PersistentVolumeClaim. It does not make the mounts in the container: package
// runtime/containerd/start puts them into the container's spec, and labels the volumes for SELinux.
//
// Begin reading at Volumes.Setup.
package volume

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/volume/csi"
	"podrun.io/podrun/internal/volume/etc"
	"podrun.io/podrun/internal/volume/mounts"
	"podrun.io/podrun/internal/volume/provision"
)

// Machine is where CSI drivers are called, and where it is seen what they have mounted.
type Machine = csi.Machine

// Options are the parameters of New.
type Options struct {
	Dirs layout.Dirs
	// HostRoot is the directory below which the host's own /etc is read; "" means "/".
	HostRoot string
	// ClusterDNS are the DNS servers of pods with dnsPolicy ClusterFirst; if empty, they use those
	// of the host.
	ClusterDNS []string
	// ClusterDomain is the suffix of pods' fully qualified names.
	ClusterDomain string
	// Neighbours returns the host entries by which a pod can reach other pods; nil: none.
	Neighbours func(p *v1.Pod) []pod.HostEntry
	// PluginsDir is where CSI drivers look for the kubelet; "": none can register.
	PluginsDir string
	// Machine is where CSI drivers are called; nil: this machine.
	Machine *Machine
	Log     *slog.Logger
}

// Volumes prepares the mounts of the pods of one root directory. Its methods may be called
// concurrently, but not two at a time for the same pod.
type Volumes struct {
	dirs   layout.Dirs
	etc    *etc.Files
	mounts *mounts.Mounter
	csi    *csi.Drivers
	// provisioner has the volumes of claims.
	provisioner *provision.Provisioner
	attempts    attempts
	log         *slog.Logger
	mu          sync.Mutex // guards owned and namespaces; not held over an access to a file system
	owned       map[ownKey]bool
	namespaces  map[string]*sync.Mutex // each held while a claim's directory is made in the namespace
	swaps       sync.Once              // warns that memory may be swapped out
}

// New returns Volumes for the pods below o.Dirs. It changes nothing on disk.
func New(o Options) *Volumes {
	if o.HostRoot == "" {
		o.HostRoot = "/"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	v := &Volumes{
		dirs: o.Dirs,
		etc: etc.New(etc.Options{
			Dirs: o.Dirs, HostRoot: o.HostRoot, ClusterDNS: o.ClusterDNS, ClusterDomain: o.ClusterDomain,
			Neighbours: o.Neighbours, Log: o.Log,
		}),
		mounts:   mounts.New(),
		attempts: attempts{of: map[pod.UID]chan struct{}{}},
		log:      o.Log,
		owned:    map[ownKey]bool{}, namespaces: map[string]*sync.Mutex{},
	}
	own := func(ctx context.Context, p *v1.Pod, path string) error { return ownInline(ctx, p, path, o.Log) }
	v.csi = csi.New(csi.Options{Dirs: o.Dirs, Dir: o.PluginsDir, Own: own, Machine: o.Machine, Log: o.Log})
	v.provisioner = &provision.Provisioner{Dirs: o.Dirs, Drivers: v.csi, Plugins: o.PluginsDir != ""}
	return v
}

// CSI returns the machine's CSI drivers.
func (v *Volumes) CSI() *csi.Drivers { return v.csi }

// Setup prepares everything that in.Container mounts. It returns the mounts in the order in which
// they must be made: an outer directory before what is mounted inside it. It may be called at every
// start of a container; what containers wrote into an emptyDir stays. The error has a
// *runtime.ReasonError; it may be temporary, so a later call may succeed. Its reason is the kubelet's:
// pod.ReasonFailedMount for a volume that is not mounted, and runtime.ReasonConfig for a part of it,
// such as a subPath, or another file that the container cannot get.
func (v *Volumes) Setup(ctx context.Context, in pod.Inside) ([]pod.Mount, error) {
	var prepared []pod.Mount
	err := v.attempts.do(ctx, in.Pod.UID, func(ctx context.Context) (err error) {
		prepared, err = v.setup(ctx, in)
		return err
	})
	var reason *runtime.ReasonError
	if err != nil && !errors.As(err, &reason) {
		return nil, &runtime.ReasonError{Reason: runtime.ReasonConfig, Err: err}
	}
	if err != nil { // prepared may be written to yet
		return nil, err
	}
	return prepared, nil
}

// notMounted gives err the reason of a volume that is not mounted.
func notMounted(err error) error {
	return &runtime.ReasonError{Reason: pod.ReasonFailedMount, Err: err}
}

// Mount makes all volumes ready that containers of in.Pod use, init containers included: as under the kubelet none of
// them runs before. It does so once a volume; images are mounted for each container. Its error is like that of Setup.
func (v *Volumes) Mount(ctx context.Context, in pod.Inside) error {
	return v.attempts.do(ctx, in.Pod.UID, func(ctx context.Context) error { return mountAll(ctx, v, in) })
}

func mountAll(ctx context.Context, v *Volumes, in pod.Inside) error {
	if err := checkFilled(ctx, v.dirs, in); err != nil {
		return notMounted(fmt.Errorf("%s failed for %w", setUpMount, err))
	}
	all := sources{}
	for _, c := range pod.AllContainers(in.Pod) {
		in.Container = c
		for name, call := range used(c) {
			if volume, err := volumeOf(in.Pod, name); err == nil && volume.Image != nil {
				continue
			}
			if _, err := all.ready(ctx, v, in, name, call); err != nil {
				return err
			}
		}
	}
	return nil
}

// The kubelet's words for what is done with a volume that is mounted, and with a device.
const setUpMount, setUpDevice = "MountVolume.SetUp", "MapVolume.SetUpDevice"

// used returns the names of the volumes that a container mounts or has as devices, each with what is done for that.
func used(c *v1.Container) iter.Seq2[string, string] {
	return func(yield func(name, call string) bool) {
		for _, m := range c.VolumeMounts {
			if !yield(m.Name, setUpMount) {
				return
			}
		}
		for _, d := range c.VolumeDevices {
			if !yield(d.Name, setUpDevice) {
				return
			}
		}
	}
}

// sources are the volumes of a pod that are prepared, by name: each once, however often it is used.
type sources map[string]source

func (s sources) ready(ctx context.Context, v *Volumes, in pod.Inside, name, call string) (source, error) {
	if one, done := s[name]; done {
		return one, nil
	}
	if err := ctx.Err(); err != nil {
		return source{}, err
	}
	one, err := v.ready(ctx, in, name)
	if err != nil {
		return source{}, notMounted(fmt.Errorf("%s failed for volume %q: %w", call, name, err))
	}
	s[name] = one
	return one, nil
}

func (v *Volumes) setup(ctx context.Context, in pod.Inside) ([]pod.Mount, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := checkFilled(ctx, v.dirs, in); err != nil {
		return nil, notMounted(fmt.Errorf("%s failed for %w", setUpMount, err))
	}
	if err := readyWithheld(v, in); err != nil {
		return nil, err
	}
	var own []pod.Mount
	all := sources{}
	for i, m := range in.Container.VolumeMounts {
		s, err := all.ready(ctx, v, in, m.Name, setUpMount)
		if err != nil {
			return nil, err
		}
		mount, err := v.mountOf(ctx, in, i, s)
		if err != nil {
			return nil, fmt.Errorf("mount of volume %q at %s: %w", m.Name, m.MountPath, err)
		}
		own = append(own, mount)
	}
	for _, d := range in.Container.VolumeDevices {
		s, err := all.ready(ctx, v, in, d.Name, setUpDevice)
		if err != nil {
			return nil, err
		}
		own = append(own, pod.Mount{HostPath: s.path, ContainerPath: d.DevicePath, ReadOnly: s.readOnly, Block: true})
	}
	if err := ctx.Err(); err != nil { // nobody waits any more, and the pod may be gone
		return nil, err
	}
	root, err := v.openPod(in.Pod.UID)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	mounts, err := v.etc.Mounts(root, in.Pod, in.Container, in.Sandbox)
	if err != nil {
		return nil, err
	}
	mounts = slices.DeleteFunc(mounts, func(m pod.Mount) bool {
		return slices.ContainsFunc(own, func(o pod.Mount) bool { return o.ContainerPath == m.ContainerPath })
	})
	mounts = append(mounts, own...)
	slices.SortStableFunc(mounts, func(a, b pod.Mount) int { return depth(a.ContainerPath) - depth(b.ContainerPath) })
	return mounts, nil
}

// RefreshHosts updates the /etc/hosts of a pod that has one already. It creates no file, because
// the pod may be terminating.
func (v *Volumes) RefreshHosts(p *v1.Pod, sandbox pod.Sandbox) error {
	return v.etc.RefreshHosts(p, sandbox)
}

// source is a volume that is prepared.
type source struct {
	path string
	// readOnly: the volume must not be written to, whatever the mount says.
	readOnly bool
	// filled: its files are written by podrun, so a missing subPath is never created.
	filled bool
	// noSUID and noDev are set if podrun has mounted it so.
	noSUID, noDev bool
	// foreign: others than podrun may have mounted it, and decided that.
	foreign bool
	// ofHost: its files are the machine's own.
	ofHost bool
	// open opens the volume without what may lead astray at its path, which others may change at any time; nil: nobody
	// but podrun, or whoever chose the path, can.
	open func() (*os.File, error)
}

// mountOf returns mount number i of the container, of a volume that is prepared.
func (v *Volumes) mountOf(ctx context.Context, in pod.Inside, i int, s source) (pod.Mount, error) {
	m := in.Container.VolumeMounts[i]
	out := pod.Mount{
		HostPath: s.path, ContainerPath: path.Join("/", m.MountPath), ReadOnly: m.ReadOnly || s.readOnly,
		NoSUID: s.noSUID, NoDev: s.noDev, OfHost: s.ofHost,
	}
	if m.RecursiveReadOnly != nil && *m.RecursiveReadOnly != v1.RecursiveReadOnlyDisabled {
		out.RecursiveReadOnly = m.ReadOnly
	}
	if m.MountPropagation != nil {
		out.Propagation = *m.MountPropagation
		if err := mounts.CanPropagate(s.path, out.Propagation); err != nil {
			return out, &runtime.ReasonError{Reason: runtime.ReasonCreate, Err: err}
		}
	}
	sub, err := subPath(in, m)
	if err != nil {
		return out, err
	}
	// A claim is bound anew: something else may be mounted on it, or in it, by now. A new sandbox has other users. What
	// a privileged container mounts on the claim itself, for others, would be on the bound one too, and end with it.
	anew := s.open != nil && !isBidirectional(m) || hasUsers(in)
	if sub != "" || anew {
		file, err := s.openPart(sub)
		if err != nil {
			return out, err
		}
		defer file.Close()
		if out.HostPath, err = v.pin(ctx, in, i, file, anew); err != nil {
			return out, err
		}
	}
	if s.foreign && out.ReadOnly { // else the container's mount has the flags of this one
		out.NoSUID, out.NoDev, err = mounts.Forbids(out.HostPath)
	}
	return out, err
}

// ready creates or checks the pod's volume of that name.
func (v *Volumes) ready(ctx context.Context, in pod.Inside, name string) (source, error) {
	volume, err := volumeOf(in.Pod, name)
	if err != nil {
		return source{}, err
	}
	from := volume.VolumeSource
	switch {
	case from.HostPath != nil:
		path, err := readyHostPath(from.HostPath)
		return source{path: path, ofHost: true}, err
	case from == (v1.VolumeSource{}): // as in Kubernetes, a volume without a source is an emptyDir
		path, err := v.readyEmptyDir(in.Pod, name, &v1.EmptyDirVolumeSource{})
		return source{path: path}, err
	case from.EmptyDir != nil:
		path, err := v.readyEmptyDir(in.Pod, name, from.EmptyDir)
		memory := from.EmptyDir.Medium != v1.StorageMediumDefault
		return source{path: path, noSUID: memory, noDev: memory}, err
	case from.PersistentVolumeClaim != nil:
		return readyPersistent(ctx, v, in, volume)
	case from.NFS != nil:
		path, err := v.readyNFS(ctx, in.Pod, name, from.NFS)
		return source{path: path, readOnly: from.NFS.ReadOnly, noDev: true}, err
	case from.CSI != nil:
		return readyCSI(ctx, v, in, csi.InlineRequest(in, volume))
	case from.Image != nil && in.Shown[name] != "":
		return source{path: in.Shown[name], readOnly: true, filled: true}, nil
	case isFilled(volume):
		path, err := v.readyFilled(in, volume)
		_, memory := pod.Filled(volume)
		return source{path: path, readOnly: true, filled: true, noSUID: memory, noDev: memory}, err
	}
	return source{}, errors.New("its kind is not supported")
}

func volumeOf(p *v1.Pod, name string) (*v1.Volume, error) {
	i := slices.IndexFunc(p.Spec.Volumes, func(o v1.Volume) bool { return o.Name == name })
	if i < 0 {
		return nil, errors.New("the pod has no such volume")
	}
	if !isComponent(name) {
		return nil, fmt.Errorf("%q cannot be a directory's name", name)
	}
	return &p.Spec.Volumes[i], nil
}

// openPod opens the pod revision's own directory and creates it if necessary. Symbolic links cannot
// lead operations on the returned root out of it.
func (v *Volumes) openPod(uid pod.UID) (*os.Root, error) {
	if !isComponent(string(uid)) {
		return nil, fmt.Errorf("the pod's uid %q cannot be a directory's name", uid)
	}
	if err := os.MkdirAll(v.dirs.Pods(), layout.ModePrivate); err != nil {
		return nil, err
	}
	dir := v.dirs.Pod(uid)
	if err := os.Mkdir(dir, layout.ModePrivate); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return nil, errors.Join(err, fmt.Errorf("%s is not a directory", dir))
	}
	return os.OpenRoot(dir)
}

// isComponent reports whether name is a single path component.
func isComponent(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00")
}

func depth(p string) int {
	if p == "/" {
		return 0
	}
	return strings.Count(p, "/")
}
