package csi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/volume/csi/wire"
	"podrun.io/podrun/internal/volume/persistent"
)

const (
	// patience is how long the start of a container waits for a driver, and the removal of a pod for each volume;
	// releasePatience for all of them. The calls go on after that. Nobody waits for a driver that keeps another one
	// waiting longer than that.
	patience        = 3 * time.Second
	releasePatience = 10 * time.Second
)

// Request asks for a volume of a pod.
type Request struct {
	Pod    *v1.Pod
	Volume string // its name in the pod
	Source *v1.CSIVolumeSource
	// Persistent is what a PersistentVolume has beyond an inline volume; nil: it is an inline one.
	Persistent *Persistent
	// Secrets are the data of the Secret that the source names.
	Secrets map[string]string
	// Driver is the driver's CSIDriver document; nil if there is none.
	Driver *pod.CSIDriver
	// Lacks is what keeps the driver from being asked, such as a missing Secret; nil if nothing does. A volume that is
	// mounted does not need it.
	Lacks error
}

// Published is a volume that is mounted on the machine.
type Published struct {
	Path     string
	ReadOnly bool
	Block    bool // Path is a device
}

// record returns the record of the volume before the driver is known. The ID has the kubelet's form. Unlike there a
// manifest may give the UID, so that the two parts must be distinct.
func (r Request) record() Record {
	if v := r.Persistent; v != nil {
		return Record{
			Driver: r.Source.Driver, ID: v.Handle, UID: r.Pod.UID, Pod: pod.KeyOf(r.Pod), Volume: r.Volume,
			PersistentVolume: v.Name, Claim: v.Claim, ReadOnly: r.readOnly(), Block: v.Block,
		}
	}
	return Record{
		Driver: r.Source.Driver, ID: "csi-" + digest(string(r.Pod.UID)+"/"+r.Volume),
		UID: r.Pod.UID, Pod: pod.KeyOf(r.Pod), Volume: r.Volume,
	}
}

func (r Request) isBlock() bool { return r.Persistent != nil && r.Persistent.Block }

func (r Request) readOnly() bool { return r.Source.ReadOnly != nil && *r.Source.ReadOnly }

// refused returns an error if the volume cannot be asked for, or the CSIDriver document forbids it.
func (r Request) refused() error {
	if r.Lacks != nil {
		return r.Lacks
	}
	return persistent.Refused(r.Driver, r.Persistent == nil)
}

// Publish makes a driver mount the volume, unless it has, and returns where. An error may be temporary, and a later
// call may succeed.
func (d *Drivers) Publish(ctx context.Context, r Request) (Published, error) {
	before, found, err := d.records.read(r.record())
	if err != nil {
		return Published{}, err
	}
	stale, err := before.isStale()
	if err != nil {
		return Published{}, err
	}
	if found && before.Published && !before.Released && !stale {
		mounted, err := d.records.isThere(before)
		same := r.isOf(before)
		if same && mounted && err == nil {
			d.Renew(r)
		}
		if err != nil || mounted {
			return Published{before.Target, r.readOnly() || !same && before.ReadOnly, before.Block}, err
		}
	}
	// Its document names another volume now, and this one is not mounted; or a former boot's device may be there.
	if found && (stale || !r.isOf(before)) {
		before.Released = true
		if err := d.records.update(before, func(r *Record) { r.Released = true }); err != nil {
			return Published{}, err
		}
	}
	if found && before.Released {
		if err := d.do(ctx, before, unpublishing, d.unpublish); err != nil {
			return Published{}, fmt.Errorf("it is not unpublished yet for the pod that had it before: %w", err)
		}
	}
	if err := r.refused(); err != nil {
		return Published{}, err
	}
	with, err := d.driver(r.Source.Driver)
	if err != nil {
		return Published{}, err
	}
	d.Renew(r)
	record := r.record()
	record.Socket, record.Target = with.endpoint, d.target(r)
	if record.Block {
		if record.Boot, err = sys.BootID(); err != nil {
			return Published{}, err
		}
	}
	if found && !before.Released {
		record.Staging = before.Staging // also if the driver stages nothing any more
	}
	return Published{record.Target, r.readOnly(), record.Block}, d.do(ctx, record, publishing,
		func(ctx context.Context, record Record) error { return d.publish(ctx, with, r, record) })
}

// target returns where a volume is mounted, which is where the kubelet has it: drivers have that directory.
func (d *Drivers) target(r Request) string {
	name := r.Volume
	if r.Persistent != nil {
		name = r.Persistent.Name
		if r.Persistent.Block {
			return filepath.Join(blockDir(d.o.Dir), publishName, name, string(r.Pod.UID))
		}
	}
	return filepath.Join(d.o.Dir, "pods", string(r.Pod.UID), "volumes", "kubernetes.io~csi", name, "mount")
}

// ownable reports whether the volume is to be given to the pod's group, by the rules of fsGroupPolicy.
func (r Request) ownable(with *driver) bool {
	policy := pod.FSGroupWithFSType
	if r.Driver != nil && r.Driver.Spec.FSGroupPolicy != nil {
		policy = *r.Driver.Spec.FSGroupPolicy
	}
	switch {
	case with.can[wire.VolumeMountGroup], r.readOnly(), r.isBlock():
		return false
	case policy == pod.FSGroupNone:
		return false
	case policy == pod.FSGroupFile:
		return true
	}
	return r.fsType() != "" && (r.Persistent == nil || r.Persistent.oneNode())
}

func (r Request) fsType() string {
	if r.Source.FSType == nil {
		return ""
	}
	return *r.Source.FSType
}

// publish calls the driver. It records the volume first.
func (d *Drivers) publish(ctx context.Context, with *driver, r Request, record Record) error {
	var recorded bool
	var err error
	if r.Persistent == nil {
		recorded, err = d.records.create(record)
	} else {
		recorded, err = d.stages.stage(ctx, with, r, &record)
	}
	if err != nil {
		return err
	}
	err = os.MkdirAll(filepath.Dir(record.Target), layout.ModePlugins)
	for n := 0; n < 3 && errors.Is(err, fs.ErrNotExist); n++ { // another pod's removal took a parent away
		err = os.MkdirAll(filepath.Dir(record.Target), layout.ModePlugins)
	}
	if err != nil {
		return err
	}
	calling, cancel := context.WithTimeout(ctx, callTimeout)
	_, err = wire.Invoke(calling, with.conn, "NodePublishVolume", r.message(with, record))
	cancel()
	if err == nil && r.Persistent != nil {
		if err := d.records.mustBeMounted(record); err != nil {
			return err
		}
	}
	if err == nil && !r.isBlock() {
		if err := verifyTarget(d.o.Dir, record); err != nil {
			return err
		}
	}
	if err == nil {
		if r.ownable(with) && d.o.Own != nil {
			err = d.o.Own(ctx, r.Pod, record.Target)
		}
		if err == nil {
			err = d.records.update(record, func(r *Record) {
				r.Published = true
				if r.Block {
					r.Device = deviceAt(r.Target)
				}
			})
		}
		return err
	}
	if !recorded && !uncertain(err) && record.Staging == "" && !d.records.mayBeMounted(record.Target) {
		err = errors.Join(err, d.records.forget(record))
	}
	return failed(record.Driver, "NodePublishVolume", err)
}

// verifyTarget returns an error if a driver has put a link on the way to the target: that would lead podrun, and the
// mount of the container, to something else on the machine.
func verifyTarget(kubelet string, r Record) error {
	dir, err := os.OpenFile(kubelet, unix.O_PATH|unix.O_DIRECTORY, 0) // trusted: podrun's own
	if err != nil {
		return err
	}
	defer dir.Close()
	name, err := filepath.Rel(kubelet, r.Target)
	if err != nil {
		return err
	}
	target, err := sys.OpenBeneath(dir, name, sys.NoLinks, unix.O_PATH)
	if err == nil {
		return target.Close()
	}
	if errors.Is(err, unix.ELOOP) {
		err = fmt.Errorf("it has put a link on the way to %s", r.Target)
	}
	return failed(r.Driver, "NodePublishVolume", err)
}

// mustBeMounted returns an error if a driver says that it has mounted a PersistentVolume, and has not where this
// machine sees it: what a pod wrote there would not be in the volume.
func (s *store) mustBeMounted(r Record) error {
	mounted, err := s.isThere(r)
	if err == nil && !mounted && r.Block {
		err = fmt.Errorf("it succeeded, but there is no block device at %s", r.Target)
	}
	if err == nil && !mounted {
		err = fmt.Errorf("it succeeded, but nothing is mounted at %s: does the driver's container mount this directory's "+
			"parents with mountPropagation: Bidirectional?", r.Target)
	}
	if err != nil {
		return failed(r.Driver, "NodePublishVolume", err)
	}
	return nil
}

// publication returns what the calls NodePublishVolume and NodeStageVolume have in common.
func (r Request) publication(with *driver, record Record) wire.Publication {
	p := wire.Publication{ID: record.ID, Staging: record.Staging, FSType: r.fsType(), Mode: wire.ModeSingleNodeWriter}
	if with.can[wire.SingleNodeMultiWriter] {
		p.Mode = wire.ModeSingleNodeMultiWriter
	}
	if r.Persistent != nil {
		p.Mode, p.Flags, p.Block = r.Persistent.mode(with), r.Persistent.MountOptions, r.Persistent.Block
	}
	if s := r.Pod.Spec.SecurityContext; with.can[wire.VolumeMountGroup] && s != nil && s.FSGroup != nil {
		p.Group = strconv.FormatInt(*s.FSGroup, 10)
	}
	p.Context = maps.Clone(r.Source.VolumeAttributes)
	return p
}

// message returns the request of the call NodePublishVolume.
func (r Request) message(with *driver, record Record) wire.Message {
	p := r.publication(with, record)
	p.Target, p.ReadOnly, p.Secrets = record.Target, r.readOnly(), r.Secrets
	if r.Persistent != nil && !r.podInfo() {
		return p.Encode()
	}
	attributes := map[string]string{}
	maps.Copy(attributes, p.Context)
	if r.Persistent == nil {
		delete(attributes, "csi.storage.k8s.io/serviceAccount.tokens") // nobody issues them: the pod's author would
	}
	// For inline volumes whatever podInfoOnMount says: their drivers do not work without.
	maps.Copy(attributes, map[string]string{
		"csi.storage.k8s.io/pod.name":            r.Pod.Name,
		"csi.storage.k8s.io/pod.namespace":       r.Pod.Namespace,
		"csi.storage.k8s.io/pod.uid":             string(r.Pod.UID),
		"csi.storage.k8s.io/serviceAccount.name": cmp.Or(r.Pod.Spec.ServiceAccountName, "default"),
		"csi.storage.k8s.io/ephemeral":           strconv.FormatBool(r.Persistent == nil),
	})
	p.Context = attributes
	return p.Encode()
}

// podInfo reports whether the CSIDriver document wants information about pods.
func (r Request) podInfo() bool {
	return r.Driver != nil && r.Driver.Spec.PodInfoOnMount != nil && *r.Driver.Spec.PodInfoOnMount
}

// failed returns the error of a call with the names of driver and call.
func failed(driver, call string, err error) error {
	return fmt.Errorf("CSI driver %s: %s: %w", driver, call, err)
}

// uncertain reports that a call that failed may have had its effect, or still have it: the codes are the kubelet's.
func uncertain(err error) bool {
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return true
	}
	return false
}

// Holders returns the pod revisions that have volumes, also those that are gone, and whether a driver is being called.
func (d *Drivers) Holders() (uids []pod.UID, calling bool) {
	all, _ := d.records.list("")
	for _, r := range all {
		uids = append(uids, r.UID)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return uids, len(d.calls) > 0
}

// Release unpublishes the volumes of a pod revision that is about to be removed. It waits for drivers for some
// seconds. What is not unpublished then is so later: no driver keeps a pod from being removed. An error means that
// this could not be recorded.
func (d *Drivers) Release(ctx context.Context, uid pod.UID) error {
	d.mu.Lock()
	maps.DeleteFunc(d.renewed, func(_ string, r Request) bool { return r.Pod.UID == uid })
	d.mu.Unlock()
	if d.stages.disinherit(func(_ string, asks Record) bool { return asks.UID == uid }) {
		defer d.change() // who waits for a volume that one pod can have
	}
	all, err := d.records.list(uid)
	if err != nil {
		d.o.Log.Warn("a volume of a removed pod may stay published", "uid", uid, "err", err)
	}
	if len(all) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, releasePatience)
	defer cancel()
	defer d.attend()
	for _, r := range all {
		if err := d.records.update(r, func(r *Record) { r.Released = true }); err != nil {
			return err
		}
		if err := d.do(ctx, r, unpublishing, d.unpublish); err != nil {
			d.o.Log.Warn("a volume of a removed pod is not unpublished yet; that is tried again when its driver registers",
				"pod", r.Pod.String(), "volume", r.Volume, "err", err)
		}
	}
	return nil
}

// unpublish calls the driver of a volume that is released, and then removes what was made for it.
func (d *Drivers) unpublish(ctx context.Context, r Record) error {
	r, found, err := d.records.read(r)
	if err != nil || !found || !r.Released { // another call has done it, and a pod may have it again
		return err
	}
	var conn Conn
	if with := d.registered(r.Driver); with != nil {
		conn = with.conn
	} else {
		if conn, err = d.dial(r.Socket); err != nil {
			return err
		}
		defer conn.Close()
	}
	calling, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = wire.Invoke(calling, conn, "NodeUnpublishVolume", wire.Unpublication(r.ID, r.Target))
	if err != nil && status.Code(err) != codes.NotFound {
		return failed(r.Driver, "NodeUnpublishVolume", err)
	}
	if err := d.records.left(r); err != nil {
		return failed(r.Driver, "NodeUnpublishVolume", err)
	}
	if r.PersistentVolume == "" {
		return d.records.forget(r)
	}
	if err := d.stages.unstage(ctx, conn, r); err != nil {
		return err
	}
	d.change() // who waits for a volume that one pod can have
	return nil
}
