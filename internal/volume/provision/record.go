package provision

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/volume/csi"
)

// Volume is what a driver makes, or has made, for a claim, as it is on disk. It has no Secrets.
type Volume struct {
	Namespace string    `json:"namespace"`
	Claim     string    `json:"claim"`
	Name      string    `json:"name"` // of the PersistentVolume, and until it has a handle the driver's for it
	Made      time.Time `json:"made"`
	Class     string    `json:"class"`
	Driver    string    `json:"driver"`
	// Socket is where the driver was when it made the volume, Handle its name for it, Context what it wants to be told
	// of it, and Size how many bytes it says that it has.
	Socket  string            `json:"socket,omitempty"`
	Handle  string            `json:"handle,omitempty"`
	Context map[string]string `json:"context,omitempty"`
	Size    int64             `json:"size,omitempty"`
	Asked
	// Retain: the driver keeps the volume when it is removed here. Deleting: it is to be deleted, and no pod gets it.
	// Unused: no pod had the claim after that was recorded, and the driver may have been asked.
	Retain   bool `json:"retain,omitempty"`
	Deleting bool `json:"deleting,omitempty"`
	Unused   bool `json:"unused,omitempty"`
}

// Asked is what a driver was asked for, from the claim and its class as they were, and will be told.
type Asked struct {
	Smallest         int64                           `json:"smallest,omitempty"` // in bytes, as Largest
	Largest          int64                           `json:"largest,omitempty"`
	Parameters       map[string]string               `json:"parameters,omitempty"`
	FSType           string                          `json:"fsType,omitempty"`
	Block            bool                            `json:"block,omitempty"`
	Modes            []v1.PersistentVolumeAccessMode `json:"accessModes"`
	MountOptions     []string                        `json:"mountOptions,omitempty"`
	ControllerSecret *v1.SecretReference             `json:"controllerSecret,omitempty"`
	StageSecret      *v1.SecretReference             `json:"stageSecret,omitempty"`
	PublishSecret    *v1.SecretReference             `json:"publishSecret,omitempty"`
}

// Key returns the claim.
func (v Volume) Key() pod.Key { return pod.Key{Namespace: v.Namespace, Name: v.Claim} }

// persistentVolume returns the document that somebody would write for the volume.
func (v Volume) persistentVolume() *v1.PersistentVolume {
	mode := v1.PersistentVolumeFilesystem
	if v.Block {
		mode = v1.PersistentVolumeBlock
	}
	out := &v1.PersistentVolume{}
	out.Name = v.Name
	size := resource.NewQuantity(max(v.Size, v.Smallest), resource.BinarySI)
	out.Spec = v1.PersistentVolumeSpec{
		Capacity:    v1.ResourceList{v1.ResourceStorage: *size},
		AccessModes: v.Modes, MountOptions: v.MountOptions, VolumeMode: &mode, StorageClassName: v.Class,
		ClaimRef: &v1.ObjectReference{Namespace: v.Namespace, Name: v.Claim},
	}
	out.Spec.CSI = &v1.CSIPersistentVolumeSource{
		Driver: v.Driver, VolumeHandle: v.Handle, FSType: v.FSType, VolumeAttributes: v.Context,
		NodeStageSecretRef: v.StageSecret, NodePublishSecretRef: v.PublishSecret,
	}
	return out
}

const suffix = ".json"

// path returns the record of a claim's volume. A claim's name may be too long for a file's.
func path(dirs layout.Dirs, claim pod.Key) string {
	sum := sha256.Sum256([]byte(claim.Namespace + "/" + claim.Name))
	return filepath.Join(layout.CSIClaims(dirs), hex.EncodeToString(sum[:])+suffix)
}

// Read returns the volume that was made, or is being made, for a claim, if there is one.
func Read(dirs layout.Dirs, claim pod.Key) (v Volume, found bool, err error) {
	at := path(dirs, claim)
	found, err = readOne(at, &v, func() bool { return v.Key() == claim && v.Name != "" && v.Driver != "" })
	if err != nil {
		return Volume{}, false, fmt.Errorf("reading the record %s of the volume of claim %s: %w; if that does not end, bring the "+
			"file back, or remove it: then the claim gets a new volume, and podrun does not know the one of its driver", at, claim, err)
	}
	return v, found, nil
}

// readOne reads a claim's record, which is one only if valid says so, and reports whether there is a file.
func readOne(at string, into any, valid func() bool) (found bool, err error) {
	text, err := os.ReadFile(at)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err == nil && !valid() {
		err = errors.New("it is not that of this claim")
	}
	return true, err
}

// List returns the volumes of all claims, by namespace and name. With an error these are those that can be read.
func List(dirs layout.Dirs) ([]Volume, error) {
	all, err := readAll(layout.CSIClaims(dirs), func(v Volume) string { return path(dirs, v.Key()) })
	slices.SortFunc(all, func(a, b Volume) int { return a.Key().Compare(b.Key()) })
	return all, err
}

// readAll returns the records in a directory, each of which is at its path. With an error these are those that can be
// read.
func readAll[T any](dir string, path func(T) string) (all []T, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), suffix) {
			continue
		}
		var one T
		at := filepath.Join(dir, e.Name())
		text, err := os.ReadFile(at)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = json.Unmarshal(text, &one)
		}
		if err == nil && path(one) != at {
			err = errors.New("it is that of another claim")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("reading the record %s: %w; it stops no claim but the one that it is of", at, err))
			continue
		}
		all = append(all, one)
	}
	return all, errors.Join(errs...)
}

func save(dirs layout.Dirs, v Volume) error {
	text, err := json.Marshal(v)
	if err == nil {
		err = sys.WriteDurable(path(dirs, v.Key()), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("recording the volume of the claim %s: %w", v.Key(), err)
	}
	return nil
}

// locked calls f while no other process reads and changes a record.
func locked(dirs layout.Dirs, f func() error) error {
	if err := os.MkdirAll(layout.CSIVolumes(dirs), layout.ModePrivate); err != nil {
		return err
	}
	lock, err := sys.LockDir(layout.CSIClaims(dirs), layout.ModePrivate)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	return f()
}

// begin records what a driver is about to be asked for, and returns what is on disk then. It keeps the name under which
// the driver may have been asked before: it makes one volume of a name.
func begin(dirs layout.Dirs, v Volume) (kept Volume, err error) {
	_, begun, err := Read(dirs, v.Key())
	if err == nil && !begun { // without the lock, which others need too: the file system of the claims may not answer
		var is bool
		if is, err = isDirectory(dirs, v.Key()); is {
			err = fmt.Errorf("the claim %s is a directory by now", v.Key())
		}
	}
	if err != nil {
		return v, err
	}
	err = locked(dirs, func() error {
		before, found, err := Read(dirs, v.Key())
		switch {
		case err != nil:
			return err
		case found && before.Deleting:
			return isDeleted(v.Key(), v.Driver)
		case found && (before.Handle != "" || before.Driver != v.Driver):
			kept = before
			return nil
		case found:
			v.Name, v.Made = before.Name, before.Made
		case begun:
			return fmt.Errorf("the volume of the claim %s was removed just now", v.Key())
		}
		kept = v
		return errors.Join(save(dirs, v), sys.SyncDir(layout.CSIVolumes(dirs)), sys.SyncDir(dirs.Root))
	})
	return kept, err
}

// complete records the volume that a driver has made under a name.
func complete(dirs layout.Dirs, claim pod.Key, name string, c csi.Created) error {
	return locked(dirs, func() error {
		v, found, err := Read(dirs, claim)
		if err == nil && (!found || v.Name != name) {
			err = fmt.Errorf("the record is gone; the driver has the volume %q, which is nobody's", c.Handle)
		}
		if err != nil || v.Handle != "" {
			return err
		}
		all, _ := List(dirs) // a record that cannot be read stops nothing but its own claim
		for _, other := range all {
			if other.Driver == v.Driver && other.Handle == c.Handle {
				err = errors.Join(err, fmt.Errorf("the driver says %q, which is the volume of the claim %s", c.Handle, other.Key()))
			}
		}
		if err != nil {
			return err
		}
		v.Handle, v.Context, v.Socket, v.Size = c.Handle, c.Context, c.Socket, c.Size
		return save(dirs, v)
	})
}

// change changes the record of a volume with that name, unless there is none any more; it removes it if f says so.
func change(dirs layout.Dirs, of Volume, f func(*Volume) (remove bool)) error {
	return locked(dirs, func() error {
		v, found, err := Read(dirs, of.Key())
		if err != nil || !found || v.Name != of.Name {
			return err
		}
		if !f(&v) {
			return save(dirs, v)
		}
		return sys.RemoveDurable(path(dirs, of.Key()))
	})
}
