package provision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/volume/csi"
)

// Remove makes the driver delete the volume of a claim, if one was made for it, and forgets it. Free returns an error
// if a pod uses the claim. With reclaimPolicy Retain the driver is not asked; then, and where it is not known whether
// the driver has made it, kept says so, after a semicolon.
func Remove(
	ctx context.Context, dirs layout.Dirs, claim pod.Key, free func() error,
) (found bool, kept string, err error) {
	v, found, err := Read(dirs, claim)
	if err != nil || !found {
		return found, "", err
	}
	// One removal of a claim's volume at a time, to its end.
	lock, err := sys.LockDir(strings.TrimSuffix(path(dirs, claim), suffix)+".removal", layout.ModePrivate)
	if err != nil {
		return true, "", err
	}
	defer lock.Unlock()
	defer os.Remove(strings.TrimSuffix(path(dirs, claim), suffix) + ".removal")
	if v, err = setDeleting(dirs, claim, free); err != nil {
		return true, "", err
	}
	undo := func(err error) (bool, string, error) {
		return true, "", errors.Join(err, change(dirs, v, func(v *Volume) bool {
			v.Deleting = false
			return false
		}))
	}
	// A pod that was created meanwhile waits for the mark to go, and then uses the volume.
	if err := free(); err != nil {
		return undo(err)
	}
	switch {
	case v.Handle == "":
		kept = fmt.Sprintf("; it is not known whether its driver %s has made %s", v.Driver, v.Name)
	case v.Retain:
		kept = fmt.Sprintf("; its driver %s keeps %s (reclaimPolicy Retain)", v.Driver, v.Handle)
	default:
		err := csi.Delete(ctx, socketOf(dirs, v), v.Driver, v.Handle, nil)
		if csi.Refused(err) {
			return undo(fmt.Errorf("%w; if it is deleted otherwise, remove %s", err, path(dirs, claim)))
		}
		if err != nil {
			return true, "", fmt.Errorf("%w; it is deleted when this is done again, and no pod gets it", err)
		}
	}
	late := false
	err = change(dirs, v, func(now *Volume) bool {
		late = v.Handle == "" && now.Handle != ""
		return !late
	})
	if err == nil && late {
		err = errors.New("its driver has made it just now; remove it again")
	}
	return true, kept, err
}

// setDeleting records that a volume that nobody uses is to be deleted.
func setDeleting(dirs layout.Dirs, claim pod.Key, free func() error) (v Volume, err error) {
	err = locked(dirs, func() error {
		if err := free(); err != nil {
			return err
		}
		var found bool
		if v, found, err = Read(dirs, claim); err != nil || !found {
			return errors.Join(err, fmt.Errorf("the volume of the claim %s is gone", claim))
		}
		published, err := csi.Records(dirs)
		if err != nil {
			return err
		}
		for _, r := range published {
			if r.PersistentVolume == v.Name || r.Driver == v.Driver && r.ID == v.Handle {
				return fmt.Errorf("its driver %s has not unpublished it yet for the pod %s", r.Driver, r.Pod)
			}
		}
		v.Deleting = true
		return save(dirs, v)
	})
	return v, err
}

// socketOf returns where the volume's driver is now, or was when it made the volume.
func socketOf(dirs layout.Dirs, v Volume) string {
	all, _ := csi.Read(dirs) // where it was will do
	for _, d := range all {
		if d.Name == v.Driver && d.Connected {
			return d.Socket
		}
	}
	return v.Socket
}
