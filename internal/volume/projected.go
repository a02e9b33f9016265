package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/volume/filled"
	"podrun.io/podrun/internal/volume/fsgroup"
)

// maxFileKey is the maximum size in bytes of a file that variables are read from.
const maxFileKey = 1 << 20

// maxFileKeys is the maximum size in bytes of all such files of a container together.
const maxFileKeys = 4 << 20

// readyFilled creates a volume whose files podrun writes, and fills it. If an object is missing and
// the volume was filled before, it keeps its content: the object may come back at any time.
func (v *Volumes) readyFilled(in pod.Inside, volume *v1.Volume) (string, error) {
	kind, memory := filledKind(volume)
	is := v.dirs.Revision(in.Pod.UID).Volume(kind, volume.Name)
	now, missing := fillAgain(in, volume, is)
	var absent *absentError
	before := errors.As(missing, &absent) && filled.IsWritten(is)
	if missing != nil && !before {
		return "", missing
	}
	dir, err := v.makeDir(in.Pod.UID, kind, volume.Name)
	if err != nil {
		return "", err
	}
	// Containers that run see the files that an earlier version of podrun wrote to the disk. A mount
	// would hide them from podrun, which could not update them any more.
	onDisk := kind == layout.KindDownwardAPI && filled.IsWritten(is)
	if memory && !onDisk {
		if err := v.mountUnswapped(in.Pod.UID, dir, "mode=0777"+filledSize()); err != nil {
			return "", err
		}
	}
	if missing != nil {
		v.log.Warn("volume keeps its previous content",
			"pod", pod.KeyOf(in.Pod).String(), "volume", volume.Name, "err", missing)
		return dir, nil
	}
	return dir, writeTo(in.Pod, dir, now.files)
}

// checkFilled returns an error if podrun would write more into the pod's volumes than
// pod.MaxFilled, or pod.MaxFilledPod into all of them: that is not part of what the pod's memory
// limits apply to. It counts all volumes, in whatever order containers mount them.
func checkFilled(ctx context.Context, dirs layout.Dirs, in pod.Inside) error {
	var total int64
	for volume, dir := range filledVolumes(dirs, in.Pod) {
		now, err := fillAgain(in, volume, dir)
		if errors.Is(err, errFull) {
			return fmt.Errorf("volume %q: %w", volume.Name, err)
		}
		if err != nil && filled.IsWritten(dir) { // it keeps what it has
			used, _, err := sys.TreeSize(ctx, dir)
			if err != nil {
				return err
			}
			now.space = max(now.space, used)
		}
		if total += now.space; total > pod.MaxFilledPod {
			return fmt.Errorf("volume %q: with it the pod's ConfigMap, Secret, downwardAPI and projected volumes "+
				"take more than %d MiB, the most for a pod", volume.Name, pod.MaxFilledPod>>20)
		}
	}
	return nil
}

// filledSize is the option with the size of memory for podrun's files. During an update a volume has both contents, and
// a long link takes a block too.
func filledSize() string { return fmt.Sprintf(",size=%d", 4*pod.MaxFilled) }

// mountUnswapped mounts memory that is not swapped out, if the kernel supports that, and other memory if not.
func (v *Volumes) mountUnswapped(uid pod.UID, dir, options string) error {
	if err := v.mountMemory(uid, dir, "tmpfs", options+",noswap"); err == nil {
		return nil
	}
	if err := v.mountMemory(uid, dir, "tmpfs", options); err != nil {
		return err
	}
	v.swaps.Do(func() {
		if swapsInUse() {
			v.log.Warn("Secrets and other volumes in memory may be swapped out: the kernel cannot prevent it before Linux 6.3")
		}
	})
	return nil
}

// swapsInUse reports whether the machine has swap space.
func swapsInUse() bool {
	swaps, err := os.ReadFile("/proc/swaps") // trusted: the kernel's
	return err == nil && bytes.Count(swaps, []byte("\n")) > 1
}

// readyWithheld mounts the in-memory directory for variables that must not be written to a disk, if
// the container has any.
func readyWithheld(v *Volumes, in pod.Inside) error {
	if !slices.ContainsFunc(in.Env, func(v pod.Variable) bool { return v.Secret }) {
		return nil
	}
	root, err := v.openPod(in.Pod.UID)
	if err != nil {
		return err
	}
	defer root.Close()
	dir := v.dirs.Revision(in.Pod.UID).Withheld()
	if err := root.Mkdir(filepath.Base(dir), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return v.mountUnswapped(in.Pod.UID, dir, "mode=0700"+filledSize())
}

// writeTo updates the files of a volume.
func writeTo(p *v1.Pod, dir string, files filled.Files) error {
	return filled.Write(dir, files, fsgroup.Of(p))
}

// Refresh updates those volumes of in.Pod that are filled already. A reader that resolves ..data
// once never sees files of both the old and the new content. If an object is missing at the moment,
// its volume keeps its previous content.
func (v *Volumes) Refresh(ctx context.Context, in pod.Inside) error {
	renewCSI(ctx, v, in)
	if err := checkFilled(ctx, v.dirs, in); err != nil {
		return err
	}
	var errs []error
	for volume, dir := range filledVolumes(v.dirs, in.Pod) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !filled.IsWritten(dir) {
			continue // the start of a container prepares it
		}
		now, err := fillAgain(in, volume, dir)
		if err == nil {
			err = writeTo(in.Pod, dir, now.files)
		}
		var absent *absentError
		switch {
		case errors.As(err, &absent):
			v.log.Debug("volume keeps its previous content",
				"pod", pod.KeyOf(in.Pod).String(), "volume", volume.Name, "err", err)
		case err != nil:
			errs = append(errs, fmt.Errorf("volume %q: %w", volume.Name, err))
		}
	}
	return errors.Join(errs...)
}

// Files implements execute.Volumes: it reads files of the pod's emptyDirs and returns the content
// of those that exist.
func (v *Volumes) Files(p *v1.Pod, keys []pod.FileKey) (map[pod.FileKey]string, error) {
	out := map[pod.FileKey]string{}
	left := maxFileKeys
	for _, key := range keys {
		if _, read := out[key]; read {
			continue
		}
		volume, err := volumeOf(p, key.Volume)
		if err != nil {
			return nil, fmt.Errorf("volume %q: %w", key.Volume, err)
		}
		if volume.EmptyDir == nil {
			return nil, fmt.Errorf("volume %q is not an emptyDir", key.Volume)
		}
		name := strings.TrimLeft(key.Path, "/")
		text, err := sys.ReadRegular(v.dirs.Revision(p.UID).EmptyDir(key.Volume), name, sys.LinksBeneath, maxFileKey)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s of volume %q: %w", key.Path, key.Volume, err)
		}
		if left -= len(text); left < 0 {
			return nil, fmt.Errorf("reading %s of volume %q: the files with variables have more than %d bytes together",
				key.Path, key.Volume, maxFileKeys)
		}
		out[key] = string(text)
	}
	return out, nil
}
