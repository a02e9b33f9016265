package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/mounted"
	"podrun.io/podrun/internal/volume/mounts"
)

// pin binds file, a volume or a part of it, to a path of podrun's own and returns that path. So the
// container's runtime mounts what was opened, even if something else is put in its place meanwhile. Unless anew, what
// an earlier start has bound there stays, if it is the same file.
func (v *Volumes) pin(ctx context.Context, in pod.Inside, i int, file *os.File, anew bool) (string, error) {
	m := in.Container.VolumeMounts[i]
	if !isComponent(in.Container.Name) {
		return "", fmt.Errorf("%q cannot be a directory's name", in.Container.Name)
	}
	at := v.dirs.Revision(in.Pod.UID).SubPath(m.Name, in.Container.Name, i)
	if err := ctx.Err(); err != nil { // nobody waits any more, and the pod may be gone
		return "", err
	}
	root, err := v.openPod(in.Pod.UID)
	if err != nil {
		return "", err
	}
	defer root.Close()
	within, err := filepath.Rel(v.dirs.Pod(in.Pod.UID), at)
	if err != nil {
		return "", err
	}
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	if !anew { // else what is bound is not looked at: its server may not answer
		have, err := root.Lstat(within)
		if err == nil && os.SameFile(have, info) {
			return at, enslave(at, m)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
	}
	if err := unpin(ctx, root, at, within); err != nil {
		return "", err
	}
	target, err := pinTarget(root, within, info.IsDir())
	if err != nil {
		return "", err
	}
	defer target.Close()
	if err := ctx.Err(); err != nil { // as before
		return "", err
	}
	if hasUsers(in) {
		err = bindMapped(file, target, v.dirs.SandboxFiles().Users(in.Sandbox.ID))
	} else {
		err = sys.Bind(descriptor(file), descriptor(target))
	}
	if err != nil {
		return "", fmt.Errorf("binding it: %w", err)
	}
	return at, enslave(at, m)
}

func descriptor(f *os.File) string { return sys.FDPath(int(f.Fd())) }

// pinTarget creates the file or directory that file is bound to.
func pinTarget(root *os.Root, within string, dir bool) (*os.File, error) {
	if err := root.MkdirAll(filepath.Dir(within), layout.ModePrivate); err != nil {
		return nil, err
	}
	if !dir {
		return root.OpenFile(within, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o640)
	}
	if err := root.Mkdir(within, layout.ModePrivate); err != nil {
		return nil, err
	}
	return root.Open(within)
}

// enslave stops mounts and unmounts at the pin from propagating to the volume itself, except for a
// mount with Bidirectional propagation.
func enslave(at string, m v1.VolumeMount) error {
	if isBidirectional(m) {
		return nil
	}
	return sys.SetPropagation(at, sys.SlaveTree)
}

func isBidirectional(m v1.VolumeMount) bool {
	return m.MountPropagation != nil && *m.MountPropagation == v1.MountPropagationBidirectional
}

// unpin undoes what an earlier start bound to the path, and removes the file or directory that was
// created for it. A directory that has something, though nothing is mounted there, is a copy: a backup
// of a running pod has read what was bound.
func unpin(ctx context.Context, root *os.Root, at, within string) error {
	if err := mounts.UnmountTree(at); err != nil {
		return err
	}
	if err := root.Remove(within); err == nil || errors.Is(err, os.ErrNotExist) {
		return nil
	} else if !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	if err := mounted.Nothing(at); err != nil {
		return err
	}
	parent, err := root.Open(filepath.Dir(within))
	if err != nil {
		return err
	}
	defer parent.Close()
	return sys.RemoveTreeIn(ctx, parent, filepath.Base(within))
}
