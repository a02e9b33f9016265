package provision

import (
	"cmp"
	"context"
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
	// Retain: the driver keeps the volume when it is removed here. Deleting: it is to be deleted.
	Retain   bool `json:"retain,omitempty"`
	Deleting bool `json:"deleting,omitempty"`
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

// path returns the record of a claim's volume. A claim's name may be too long for a file's.
func path(dirs layout.Dirs, claim pod.Key) string {
	sum := sha256.Sum256([]byte(claim.Namespace + "/" + claim.Name))
	return filepath.Join(layout.CSIClaims(dirs), hex.EncodeToString(sum[:])+".json")
}

// Read returns the volume that was made, or is being made, for a claim, if there is one.
func Read(dirs layout.Dirs, claim pod.Key) (v Volume, found bool, err error) {
	at := path(dirs, claim)
	text, err := os.ReadFile(at)
	if errors.Is(err, fs.ErrNotExist) {
		return v, false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err == nil && (v.Key() != claim || v.Name == "" || v.Driver == "") {
		err = errors.New("it is not that of this claim")
	}
	if err != nil {
		return Volume{}, false, fmt.Errorf("reading the record %s of the volume of claim %s: %w", at, claim, err)
	}
	return v, true, nil
}

// List returns the volumes of all claims, by namespace and name. With an error these are those that can be read.
func List(dirs layout.Dirs) ([]Volume, error) {
	entries, err := os.ReadDir(layout.CSIClaims(dirs))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Volume
	var errs []error
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		var v Volume
		text, err := os.ReadFile(filepath.Join(layout.CSIClaims(dirs), e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = json.Unmarshal(text, &v)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("reading the record %s: %w", e.Name(), err))
			continue
		}
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b Volume) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Claim, b.Claim))
	})
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

// begin records a volume that a driver is about to be asked for, and returns what is on disk then. It reports whether
// it was before: the driver may have made it.
func begin(dirs layout.Dirs, v Volume) (kept Volume, before bool, err error) {
	err = locked(dirs, func() error {
		kept, before, err = Read(dirs, v.Key())
		switch {
		case err != nil:
			return err
		case before && kept.Deleting:
			return fmt.Errorf("the volume of the claim %s is being deleted", v.Key())
		case before:
			return nil
		}
		kept = v
		return errors.Join(save(dirs, v), settle(layout.CSIVolumes(dirs)), settle(dirs.Root))
	})
	return kept, before, err
}

// settle makes what was made in a directory survive a loss of power.
func settle(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// complete records the volume that a driver has made.
func complete(dirs layout.Dirs, claim pod.Key, c csi.Created) error {
	return locked(dirs, func() error {
		v, found, err := Read(dirs, claim)
		if err == nil && !found {
			err = fmt.Errorf("the record is gone; the driver has the volume %q, which is nobody's", c.Handle)
		}
		if err != nil {
			return err
		}
		v.Handle, v.Context, v.Socket, v.Size = c.Handle, c.Context, c.Socket, c.Size
		return save(dirs, v)
	})
}

// forget removes the record of a volume that no driver has.
func forget(dirs layout.Dirs, claim pod.Key) error {
	return locked(dirs, func() error {
		if err := os.Remove(path(dirs, claim)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

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
	if v, err = setDeleting(dirs, claim, free); err != nil {
		return true, "", err
	}
	// A pod that was created meanwhile waits for the mark to go, and then uses the volume.
	if err := free(); err != nil {
		return true, "", errors.Join(err, locked(dirs, func() error {
			v.Deleting = false
			return save(dirs, v)
		}))
	}
	switch {
	case v.Handle == "":
		kept = fmt.Sprintf("; it is not known whether its driver %s has made %s", v.Driver, v.Name)
	case v.Retain:
		kept = fmt.Sprintf("; its driver %s keeps %s (reclaimPolicy Retain)", v.Driver, v.Handle)
	default:
		if err := csi.Delete(ctx, socketOf(dirs, v), v.Driver, v.Handle, nil); err != nil {
			return true, "", fmt.Errorf("%w; it is deleted when this is done again, and no pod gets it", err)
		}
	}
	return true, kept, forget(dirs, claim)
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
			if r.PersistentVolume == v.Name {
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
