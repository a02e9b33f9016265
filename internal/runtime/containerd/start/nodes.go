package start

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/sys"
)

// runc makes the node of a device where its path leads in the container. By a link in the image or in a volume, or by a
// plugin's mount, that may be in a directory that is there longer than the container: the node would stay, be anybody's
// who reaches that directory, and lead to another device one day. So runc makes none of what podrun adds. podrun makes
// the nodes, runc mounts them, and then podrun removes them: the container has them, and nobody else.

// node is a device that the container has by a mount of a node that podrun makes.
type node struct {
	at string
	specs.LinuxDevice
}

// setNodes makes the devices that were added to a spec mounts of nodes. machines are the devices of the machine that
// the container has besides.
func (st *ContainerStarter) setNodes(l *launch, spec *specs.Spec, machines []specs.LinuxDevice) {
	added := spec.Linux.Devices
	spec.Linux.Devices = slices.DeleteFunc(slices.Clone(machines), func(d specs.LinuxDevice) bool {
		return slices.ContainsFunc(added, func(a specs.LinuxDevice) bool { return path.Join("/", a.Path) == d.Path })
	})
	// In a user namespace runc itself mounts nodes. In a /dev that is another's it makes none.
	if !l.handler.isRunc() || l.Sandbox.Details.FirstUser != 0 || hasMount(spec, "/dev", "bind") {
		spec.Linux.Devices = append(spec.Linux.Devices, added...)
		return
	}
	l.nodes = nil
	dir := st.o.Dirs.Revision(l.Pod.UID).RawLog(l.Container.Name, l.ID)
	for _, d := range added {
		at := path.Join("/", d.Path)
		if hasMount(spec, at, "") {
			continue // the container has something else there
		}
		n := node{layout.DeviceNode(dir, len(l.nodes)), d}
		l.nodes = append(l.nodes, n)
		// For nosuid runc sets all flags anew: podrun's directory may be mounted with nodev.
		spec.Mounts = append(spec.Mounts, specs.Mount{
			Source: n.at, Destination: at, Type: "bind", Options: []string{"bind", "rprivate", "rw", "dev", "nosuid"},
		})
	}
	if len(l.nodes) > 0 {
		sortMounts(spec.Mounts)
	}
}

// hasMount reports whether a spec has a mount at a path, of a type if that is not "".
func hasMount(spec *specs.Spec, at, kind string) bool {
	return slices.ContainsFunc(spec.Mounts, func(m specs.Mount) bool {
		return path.Join("/", m.Destination) == at && (kind == "" || m.Type == kind)
	})
}

// makeNodes makes the nodes that runc mounts. The caller removes them, also after an error.
func (l *launch) makeNodes(ctx context.Context) error {
	for _, n := range l.nodes {
		if err := n.make(ctx, l.public.Linux.MountLabel); err != nil {
			return failed(&os.PathError{Op: "making the device", Path: n.Path, Err: err})
		}
	}
	return nil
}

func (n node) make(ctx context.Context, label string) error {
	mode, uid, gid := uint32(0o666), 0, 0
	if n.FileMode != nil {
		mode = uint32(n.FileMode.Perm())
	}
	if n.UID != nil {
		uid = int(*n.UID)
	}
	if n.GID != nil {
		gid = int(*n.GID)
	}
	kind := map[string]uint32{"b": unix.S_IFBLK, "p": unix.S_IFIFO}[n.Type]
	if kind == 0 {
		kind = unix.S_IFCHR
	}
	err := unix.Mknod(n.at, kind, int(unix.Mkdev(uint32(n.Major), uint32(n.Minor))))
	if err == nil {
		err = errors.Join(os.Lchown(n.at, uid, gid), os.Chmod(n.at, fs.FileMode(mode))) // trusted: podrun's own
	}
	if err == nil && label != "" {
		err = sys.LabelTree(ctx, n.at, label)
	}
	return err
}

// removeNodes removes the nodes; the container keeps its own.
func (st *ContainerStarter) removeNodes(l *launch) {
	for _, n := range l.nodes {
		if err := os.Remove(n.at); err != nil && !errors.Is(err, fs.ErrNotExist) {
			st.o.Log.Warn("a device's node stays until the container is removed", "container", l.ID, "err", err)
		}
	}
}
