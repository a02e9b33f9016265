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
// if a pod has the claim. A removal that the driver did not finish is finished whatever free says: no pod had the claim
// when it began, and those that came later have only waited. With reclaimPolicy Retain the driver is not asked; then,
// and where it is not known whether the driver has made it, kept says so, after a semicolon.
func Remove(
	ctx context.Context, dirs layout.Dirs, claim pod.Key, free func() error,
) (found bool, kept string, err error) {
	v, found, err := Read(dirs, claim)
	if err != nil {
		return found, "", err
	}
	if !found {
		return false, "", sys.SyncRemoved(path(dirs, claim))
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
			v.Deleting, v.Unused = false, false
			return false
		}))
	}
	if !v.Unused {
		// A pod that was created meanwhile waits for the mark to go, and then uses the volume.
		if err := free(); err != nil {
			return undo(err)
		}
		if err := change(dirs, v, func(v *Volume) bool { v.Unused = true; return false }); err != nil {
			return true, "", err
		}
	}
	switch {
	case v.Handle == "":
		kept = fmt.Sprintf("; its driver %s may have made a volume %s before it failed: see to it that the driver has none, "+
			"podrun does not know it any more", v.Driver, v.Name)
	case v.Retain:
		kept = fmt.Sprintf("; its driver %s keeps %s (reclaimPolicy Retain)", v.Driver, v.Handle)
	default:
		err := csi.Delete(ctx, socketOf(dirs, v), v.Driver, v.Handle, nil)
		if csi.Refused(err) {
			return undo(fmt.Errorf("%w; if it is deleted otherwise, remove %s", err, path(dirs, claim)))
		}
		if err != nil {
			return true, "", fmt.Errorf("%w; the removal is not finished, and no pod gets the volume: run %s again when the "+
				"driver is back", err, Command(claim))
		}
	}
	late := false
	err = change(dirs, v, func(now *Volume) bool {
		late = v.Handle == "" && now.Handle != ""
		return !late
	})
	if err == nil && late {
		err = fmt.Errorf("its driver has made it just now; run %s again", Command(claim))
	}
	return true, kept, err
}

// Command returns the command that removes the volume of a claim.
func Command(claim pod.Key) string {
	return "podrun volumes rm " + claim.Name + " -n " + claim.Namespace
}

// setDeleting records that a volume that nobody uses is to be deleted. A mark that a killed command has left, before
// it was sure that nobody uses the volume, goes if a pod has the claim by now: the driver was not called.
func setDeleting(dirs layout.Dirs, claim pod.Key, free func() error) (v Volume, err error) {
	err = locked(dirs, func() error {
		var found bool
		if v, found, err = Read(dirs, claim); err != nil || !found {
			return errors.Join(err, fmt.Errorf("the volume of the claim %s is gone", claim))
		}
		if v.Unused {
			return nil
		}
		if err := free(); err != nil {
			if v.Deleting {
				v.Deleting = false
				err = errors.Join(err, save(dirs, v))
			}
			return err
		}
		published, err := csi.PersistentRecords(dirs)
		if err != nil {
			return err
		}
		for _, r := range published {
			if r.PersistentVolume == v.Name || r.Driver == v.Driver && r.ID == v.Handle {
				return fmt.Errorf("its driver %s has not unpublished it yet for the pod %s; podrun serve makes it do so when the "+
					"driver answers", r.Driver, r.Pod)
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
