// Package claims lists the volumes of PersistentVolumeClaims, for people, and removes them. It reads what is on disk,
// so that it needs no podrun that runs; no documents are there.
//
// It mounts nothing, and removes nothing that a pod has. The directory of a claim is made by package volume.
//
// Begin reading at List and Remove.
package claims

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/volume/csi"
	"podrun.io/podrun/internal/volume/directory"
	"podrun.io/podrun/internal/volume/provision"
)

// The states of claims.
const (
	// Bound: it has a volume. Pending: a pod waits for it, or has not used it yet.
	Bound   = "Bound"
	Pending = "Pending"
	// Deleting: its volume is being deleted, or its driver is still to be asked for that.
	Deleting = "Deleting"
	// Unknown: its record cannot be read.
	Unknown = "Unknown"
)

// Claim is a PersistentVolumeClaim and its volume, which outlives pods.
type Claim struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Path      string    `json:"path"` // of a directory, or of the export of an NFS server
	Made      time.Time `json:"made,omitzero"`
	// Pods are the names of the pods that have the claim in their manifest.
	Pods []string `json:"pods"`
	// Driver has the volume, and calls it Handle; "": it is no driver's.
	Driver       string `json:"driver,omitempty"`
	StorageClass string `json:"storageClass,omitempty"`
	Handle       string `json:"handle,omitempty"`
	// Status is one of the states, and Message says more of it.
	Status  string `json:"status"`
	Message string `json:"message,omitempty"`
	// Volume is the name of the PersistentVolume; "": it is a directory, or has none yet.
	Volume      string                          `json:"volume,omitempty"`
	Capacity    string                          `json:"capacity,omitempty"`
	AccessModes []v1.PersistentVolumeAccessMode `json:"accessModes,omitempty"`
	VolumeMode  v1.PersistentVolumeMode         `json:"volumeMode,omitempty"`
}

func (c Claim) key() pod.Key { return pod.Key{Namespace: c.Namespace, Name: c.Name} }

// List returns the claims that pods have and those that have a volume, sorted by namespace and name. With an error
// these are those of which something can be read.
func List(dirs layout.Dirs, waiting Waiting) ([]Claim, error) {
	all := map[pod.Key]Claim{}
	add := func(c Claim) { all[c.key()] = c }
	using, unread := users(dirs, waiting)
	errs := []error{unread, directories(dirs, add)}
	published, err := csi.Records(dirs)
	errs = append(errs, err)
	for _, r := range published {
		if r.Claim != "" {
			add(ofRecord(r))
		}
	}
	bound, err := provision.Bindings(dirs)
	errs = append(errs, err)
	for _, b := range bound {
		add(ofBinding(b))
	}
	made, err := provision.List(dirs)
	errs = append(errs, err)
	for _, v := range made {
		if all[v.Key()].Volume == "" || v.Handle != "" { // a volume of the manifests comes before one that may be made
			add(ofVolume(v))
		}
	}
	claims := []Claim{}
	for key := range using {
		if _, is := all[key]; !is {
			add(pending(dirs, key))
		}
	}
	for key, c := range all {
		c.Pods = using[key]
		claims = append(claims, c)
	}
	slices.SortFunc(claims, func(a, b Claim) int { return a.key().Compare(b.key()) })
	if err := errors.Join(errs...); err != nil {
		return claims, fmt.Errorf("listing volumes: %w", err)
	}
	return claims, nil
}

// modeOf returns a volume's mode.
func modeOf(block bool) v1.PersistentVolumeMode {
	if block {
		return v1.PersistentVolumeBlock
	}
	return v1.PersistentVolumeFilesystem
}

// ofRecord returns the claim of a volume that a driver has published.
func ofRecord(r csi.Record) Claim {
	return Claim{
		Namespace: r.Pod.Namespace, Name: r.Claim, Status: Bound, Volume: r.PersistentVolume,
		Driver: r.Driver, Handle: r.ID, VolumeMode: modeOf(r.Block),
	}
}

// ofBinding returns a claim that has a PersistentVolume of the manifests.
func ofBinding(b provision.Binding) Claim {
	return Claim{
		Namespace: b.Namespace, Name: b.Claim, Made: b.Made, Status: Bound, Volume: b.Name, StorageClass: b.Class,
		Capacity: b.Size, AccessModes: b.Modes, VolumeMode: modeOf(b.Block), Path: b.Path,
		Driver: b.Driver, Handle: b.Handle,
	}
}

// ofVolume returns a claim whose volume a driver makes.
func ofVolume(v provision.Volume) Claim {
	c := Claim{
		Namespace: v.Namespace, Name: v.Claim, Made: v.Made, Status: Bound, Volume: v.Name, StorageClass: v.Class,
		AccessModes: v.Modes, VolumeMode: modeOf(v.Block), Driver: v.Driver, Handle: v.Handle,
	}
	if size := cmp.Or(v.Size, v.Smallest); size > 0 {
		c.Capacity = resource.NewQuantity(size, resource.BinarySI).String()
	}
	switch {
	case v.Deleting:
		c.Status = Deleting
		c.Message = fmt.Sprintf("if that does not end, run %s when the driver is back", provision.Command(c.key()))
	case v.Handle == "":
		c.Status, c.Message = Pending, "its driver has not confirmed that it has made the volume"
	}
	return c
}

// pending returns a claim that pods have, and that has no volume that can be read.
func pending(dirs layout.Dirs, key pod.Key) Claim {
	c := Claim{Namespace: key.Namespace, Name: key.Name, Status: Pending}
	_, _, err := provision.Read(dirs, key)
	_, _, unread := provision.ReadBinding(dirs, key)
	if err := errors.Join(err, unread, provision.CheckMounted(dirs, key)); err != nil {
		c.Status, c.Message = Unknown, err.Error()
	}
	return c
}

// directories calls add with the claims that are directories. With an error there may be more.
func directories(dirs layout.Dirs, add func(Claim)) error {
	spaces, err := os.ReadDir(dirs.Claims())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, space := range spaces {
		if !space.IsDir() {
			continue
		}
		in, err := directory.OpenClaims(dirs, space.Name(), os.O_RDONLY)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		names, err := in.Readdirnames(-1)
		errs = append(errs, err)
		for _, name := range names {
			made, is := made(in, name)
			if !is || strings.HasPrefix(name, ".") {
				continue
			}
			c := Claim{
				Namespace: space.Name(), Name: name, Path: dirs.Claim(space.Name(), name), Made: made, Status: Bound,
				VolumeMode: v1.PersistentVolumeFilesystem,
			}
			if err := provision.CheckMounted(dirs, c.key()); err != nil {
				c.Status, c.Message = Unknown, err.Error()
			}
			add(c)
		}
		_ = in.Close()
	}
	return errors.Join(errs...)
}

// made reports whether a name in an open directory is that of a directory, and returns when that was created or, on a
// file system that does not know, when its content last changed.
func made(in *os.File, name string) (time.Time, bool) {
	var s unix.Statx_t
	const wanted = unix.STATX_BTIME | unix.STATX_MTIME | unix.STATX_TYPE
	err := unix.Statx(int(in.Fd()), name, unix.AT_SYMLINK_NOFOLLOW, wanted, &s)
	if err != nil || s.Mode&unix.S_IFMT != unix.S_IFDIR {
		return time.Time{}, false
	}
	at := s.Mtime
	if s.Mask&unix.STATX_BTIME != 0 {
		at = s.Btime
	}
	return time.Unix(at.Sec, int64(at.Nsec)), true
}
