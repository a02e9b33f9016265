package provision

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/volume/persistent"
)

// Binding is the PersistentVolume of the manifests that a claim had last, as it is on disk. A claim whose volume is in
// no manifest any more waits for it: what its pods wrote to a directory instead would be in the wrong one. That is so
// until its user removes the claim's volume, which removes nothing but the record.
type Binding struct {
	Namespace string                          `json:"namespace"`
	Claim     string                          `json:"claim"`
	Name      string                          `json:"name"` // of the PersistentVolume
	Made      time.Time                       `json:"made"`
	Class     string                          `json:"class,omitempty"`
	Size      string                          `json:"size,omitempty"`
	Block     bool                            `json:"block,omitempty"`
	Modes     []v1.PersistentVolumeAccessMode `json:"accessModes,omitempty"`
	// Path is the directory of the machine, or server and path of an export; Driver and Handle are of a driver's
	// volume.
	Path   string `json:"path,omitempty"`
	Driver string `json:"driver,omitempty"`
	Handle string `json:"handle,omitempty"`
}

// Key returns the claim.
func (b Binding) Key() pod.Key { return pod.Key{Namespace: b.Namespace, Name: b.Claim} }

func bindingPath(dirs layout.Dirs, claim pod.Key) string {
	return filepath.Join(layout.ClaimBindings(dirs), filepath.Base(path(dirs, claim)))
}

// bind records the PersistentVolume that a claim has by the manifests.
func bind(dirs layout.Dirs, claim pod.Key, pv *v1.PersistentVolume) error {
	b := Binding{
		Namespace: claim.Namespace, Claim: claim.Name, Name: pv.Name, Class: pv.Spec.StorageClassName,
		Block: persistent.IsBlock(pv.Spec.VolumeMode), Modes: pv.Spec.AccessModes,
	}
	if size, given := pv.Spec.Capacity[v1.ResourceStorage]; given {
		b.Size = size.String()
	}
	switch s := pv.Spec.PersistentVolumeSource; {
	case s.HostPath != nil:
		b.Path = s.HostPath.Path
	case s.NFS != nil:
		b.Path = s.NFS.Server + ":" + s.NFS.Path
	case s.CSI != nil:
		b.Driver, b.Handle = s.CSI.Driver, s.CSI.VolumeHandle
	}
	before, found, err := ReadBinding(dirs, claim) // one that is damaged is written anew
	if b.Made = before.Made; err != nil || before.Name != b.Name {
		b.Made = time.Now()
	}
	was, _ := json.Marshal(before)
	text, err := json.Marshal(b)
	if err == nil && bytes.Equal(was, text) {
		return nil
	}
	if err == nil {
		err = os.MkdirAll(layout.ClaimBindings(dirs), layout.ModePrivate)
	}
	if err == nil {
		err = sys.WriteDurable(bindingPath(dirs, claim), text, 0o600)
	}
	if err == nil && !found {
		err = errors.Join(sys.SyncDir(layout.CSIVolumes(dirs)), sys.SyncDir(dirs.Root))
	}
	if err != nil {
		return fmt.Errorf("recording the PersistentVolume of the claim %s: %w", claim, err)
	}
	return nil
}

// ReadBinding returns the PersistentVolume that a claim had last, if it had one.
func ReadBinding(dirs layout.Dirs, claim pod.Key) (b Binding, found bool, err error) {
	at := bindingPath(dirs, claim)
	found, err = readOne(at, &b, func() bool { return b.Key() == claim && b.Name != "" })
	if err != nil {
		return Binding{}, true, fmt.Errorf("reading the record %s of the PersistentVolume of claim %s: %w; if that does not end, "+
			"remove the file: then the claim may have another volume, and data of the former one stay", at, claim, err)
	}
	return b, found, nil
}

// lost returns an error if a claim for which the manifests have no PersistentVolume had one.
func lost(dirs layout.Dirs, claim pod.Key) error {
	b, found, err := ReadBinding(dirs, claim)
	if err == nil && found {
		err = fmt.Errorf("the claim %s has the PersistentVolume %q, which no manifest has for it now; bring that back, or run %s "+
			"when no pod has the claim, and it may have another volume", claim, b.Name, Command(claim))
	}
	return err
}

// Unbind forgets the PersistentVolume that a claim had, whose data stays. Free returns an error if a pod has the claim.
func Unbind(dirs layout.Dirs, claim pod.Key, free func() error) (found bool, kept string, err error) {
	b, found, err := ReadBinding(dirs, claim)
	if err != nil {
		return found, "", err
	}
	if !found {
		return false, "", sys.SyncRemoved(bindingPath(dirs, claim))
	}
	if err := free(); err != nil {
		return true, "", err
	}
	return true, fmt.Sprintf("; the PersistentVolume %q keeps its data, and is not the claim's any more", b.Name),
		sys.RemoveDurable(bindingPath(dirs, claim))
}

// Bindings returns the PersistentVolumes that claims had last. With an error these are those that can be read.
func Bindings(dirs layout.Dirs) ([]Binding, error) {
	return readAll(layout.ClaimBindings(dirs), func(b Binding) string { return bindingPath(dirs, b.Key()) })
}
