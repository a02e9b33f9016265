package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/volume/csi/wire"
)

// Persistent is what a PersistentVolume has beyond an inline volume.
type Persistent struct {
	Name, Claim string
	// Handle is the driver's name for the volume.
	Handle       string
	Modes        []v1.PersistentVolumeAccessMode
	MountOptions []string
	// Block: it is a device, without a file system.
	Block bool
	// StageSecrets are for staging the volume.
	StageSecrets map[string]string
}

// isOf reports whether a record is that of the volume, not of one that the same document named before.
func (r Request) isOf(before Record) bool {
	now := r.record()
	return now.Driver == before.Driver && now.ID == before.ID && now.Block == before.Block
}

// has reports whether the volume has one of the access modes.
func (v *Persistent) has(modes ...v1.PersistentVolumeAccessMode) bool {
	return slices.ContainsFunc(v.Modes, func(m v1.PersistentVolumeAccessMode) bool { return slices.Contains(modes, m) })
}

// oneNode reports whether the volume may be written to by one machine alone.
func (v *Persistent) oneNode() bool { return v.has(v1.ReadWriteOnce, v1.ReadWriteOncePod) }

// mode returns what a driver is told of the first access mode, as by the kubelet.
func (v *Persistent) mode(with *driver) wire.AccessMode {
	if len(v.Modes) > 0 {
		return modeOf(v.Modes[0], with)
	}
	return modeOf(v1.ReadWriteOnce, with)
}

// modeOf returns what a driver is told of an access mode.
func modeOf(mode v1.PersistentVolumeAccessMode, with *driver) wire.AccessMode {
	switch mode {
	case v1.ReadOnlyMany:
		return wire.ModeMultiNodeReaderOnly
	case v1.ReadWriteMany:
		return wire.ModeMultiNodeMultiWriter
	}
	switch { // a driver that has one of these modes has both
	case !with.can[wire.SingleNodeMultiWriter]:
		return wire.ModeSingleNodeWriter
	case mode == v1.ReadWriteOncePod:
		return wire.ModeSingleNodeSingleWriter
	}
	return wire.ModeSingleNodeMultiWriter
}

// stages has the volumes that are staged, each once for all pods of the machine.
type stages struct {
	dir     string // Options.Dir
	records *store

	mu   sync.Mutex
	done map[string]*driver       // who has staged in this process, by where
	busy map[string]chan struct{} // full while a volume is recorded, staged or unstaged, by where it is
	// heirs have asked for a volume that the former revision of their pod has, by where it is.
	heirs map[string]Record
}

func newStages(dir string, records *store) *stages {
	return &stages{dir: dir, records: records, done: map[string]*driver{}, busy: map[string]chan struct{}{},
		heirs: map[string]Record{}}
}

// path returns where a volume is staged, which is where the kubelet has it.
func (s *stages) path(r Record) string {
	if r.Block {
		return filepath.Join(blockDir(s.dir), stagingName, r.Driver, digest(r.ID))
	}
	return filepath.Join(s.dir, "plugins", "kubernetes.io", "csi", r.Driver, digest(r.ID), "globalmount")
}

// lock waits until nobody else records, stages or unstages a volume, and returns the end of that.
func (s *stages) lock(at string) (unlock func()) {
	s.mu.Lock()
	busy := s.busy[at]
	if busy == nil {
		busy = make(chan struct{}, 1)
		s.busy[at] = busy
	}
	s.mu.Unlock()
	busy <- struct{}{}
	return func() { <-busy }
}

// stage records the volume, and makes its driver stage it if drivers like it do and it has not for another pod. The
// record then says where.
func (s *stages) stage(ctx context.Context, with *driver, r Request, record *Record) (recorded bool, err error) {
	if err := r.attached(ctx, with); err != nil {
		return false, err
	}
	at := s.path(*record)
	defer s.lock(at)()
	others, err := s.records.others(*record)
	if r.Persistent.has(v1.ReadWriteOncePod) {
		if err != nil {
			return false, fmt.Errorf("it is ReadWriteOncePod, and another pod may have it: %w", err)
		}
		// The document may have had another name, under which this pod has it.
		of := slices.IndexFunc(others, func(o Record) bool { return o.UID != record.UID })
		if of >= 0 {
			s.bequeath(at, others[of], *record)
			if others[of].Pod == record.Pod {
				return false, errors.New("it is ReadWriteOncePod, and not unpublished yet for the pod's former revision")
			}
			return false, fmt.Errorf("it is ReadWriteOncePod, and the pod %s has it", others[of].Pod)
		}
		if next, is := s.heir(at); is && next.Pod != record.Pod {
			return false, fmt.Errorf("it is ReadWriteOncePod, and kept for the next revision of the pod %s", next.Pod)
		}
	}
	if with.can[wire.StageUnstage] {
		record.Staging = at
	}
	if recorded, err = s.records.create(*record); err == nil {
		s.disinherit(func(where string, _ Record) bool { return where == at }) // it has it
	}
	if err != nil || !with.can[wire.StageUnstage] {
		return recorded, err
	}
	s.mu.Lock()
	done := s.done[at] == with
	s.mu.Unlock()
	if done {
		return recorded, nil
	}
	err = os.MkdirAll(at, layout.ModePlugins)
	for n := 0; n < 3 && errors.Is(err, fs.ErrNotExist); n++ { // another volume's removal took its parent away
		err = os.MkdirAll(at, layout.ModePlugins)
	}
	if err != nil {
		return recorded, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	p := r.publication(with, *record)
	p.Secrets = r.Persistent.StageSecrets
	if _, err = wire.Invoke(ctx, with.conn, "NodeStageVolume", p.EncodeStage()); err == nil {
		s.mu.Lock()
		s.done[at] = with
		s.mu.Unlock()
		return recorded, nil
	}
	if !recorded && !uncertain(err) && !s.records.mayBeMounted(at) {
		if len(others) == 0 {
			removeStaging(at)
		}
		err = errors.Join(err, s.records.forget(*record))
	}
	return recorded, failed(record.Driver, "NodeStageVolume", err)
}

// bequeath makes the next revision of a pod the heir of a volume that the former one still has: a pod that waits for
// the volume does not get it by an edit of the pod that has it.
func (s *stages) bequeath(at string, has, asks Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if next, is := s.heirs[at]; has.Pod == asks.Pod || is && next.Pod == asks.Pod {
		s.heirs[at] = asks
	}
}

// heir returns who gets a volume before all others.
func (s *stages) heir(at string) (asks Record, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	asks, is = s.heirs[at]
	return asks, is
}

// disinherit forgets heirs, and reports whether there were such.
func (s *stages) disinherit(which func(at string, asks Record) bool) (were bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.heirs)
	maps.DeleteFunc(s.heirs, which)
	return len(s.heirs) < n
}

// attached returns an error if the driver says that its controller attaches volumes to machines. Where there is a
// CSIDriver document, that says whether it does.
func (r Request) attached(ctx context.Context, with *driver) error {
	if r.Driver != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for _, ask := range []struct {
		call string
		of   wire.Capability
	}{{"Identity/GetPluginCapabilities", wire.ControllerService}, {"Controller/ControllerGetCapabilities", wire.PublishUnpublishVolume}} {
		answer, err := wire.Invoke(ctx, with.conn, ask.call, nil)
		if err != nil && uncertain(err) {
			return failed(r.Source.Driver, ask.call, err)
		}
		can, malformed := answer.Capabilities()
		if err != nil || malformed != nil || !can[ask.of] {
			return nil
		}
	}
	return fmt.Errorf("the CSI driver %s attaches volumes to machines by its controller (PUBLISH_UNPUBLISH_VOLUME), and podrun "+
		"does not call that; if it need not, say so by attachRequired: false in a CSIDriver document", r.Source.Driver)
}

// unstage makes the driver unstage a volume that is unpublished, if no other pod has it, and forgets it.
func (s *stages) unstage(ctx context.Context, conn Conn, r Record) error {
	defer s.lock(s.path(r))()
	others, err := s.records.others(r)
	if err != nil {
		return fmt.Errorf("it is not unstaged, for another pod may have it: %w", err)
	}
	if r.Staging == "" || slices.ContainsFunc(others, func(o Record) bool { return o.Staging == r.Staging }) {
		return s.records.forget(r)
	}
	s.mu.Lock()
	delete(s.done, r.Staging)
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = wire.Invoke(ctx, conn, "NodeUnstageVolume", wire.Message(nil).Text(1, r.ID).Text(2, r.Staging))
	switch status.Code(err) {
	case codes.OK, codes.NotFound, codes.Unimplemented: // a driver that stages nothing any more has nothing staged
	default:
		return failed(r.Driver, "NodeUnstageVolume", err)
	}
	switch mounted, err := s.records.isMounted(r.Staging); {
	case err != nil:
		return err
	case mounted:
		return failed(r.Driver, "NodeUnstageVolume", fmt.Errorf("it succeeded, but %s is still mounted", r.Staging))
	}
	removeStaging(r.Staging)
	return s.records.forget(r)
}

// removeStaging removes the directories that were made for staging a volume, unless they are not empty.
func removeStaging(dir string) {
	for range 3 { // …/DRIVER/HASH/globalmount; …/staging/DRIVER/HASH, which drivers may have in containers
		if filepath.Base(dir) == stagingName {
			return
		}
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return
		}
		dir = filepath.Dir(dir)
	}
}

// others returns the records of other pods that have the same PersistentVolume's volume. With an error there may be
// more.
func (s *store) others(than Record) ([]Record, error) {
	all, err := s.persistents()
	return slices.DeleteFunc(all, func(r Record) bool {
		return r.Driver != than.Driver || r.ID != than.ID || r.file() == than.file()
	}), err
}

// persistent returns the record of a PersistentVolume of a pod.
func (s *store) persistent(uid pod.UID, is func(Record) bool) (r Record, found bool, err error) {
	all, err := s.list(uid)
	i := slices.IndexFunc(all, func(r Record) bool { return r.PersistentVolume != "" && is(r) })
	if i < 0 {
		return r, false, err
	}
	return all[i], true, nil
}

// Retained returns the volume of the PersistentVolume that a pod's claim had when its driver was called, whatever the
// manifests say now, and the volume's name; "" if it had none.
func (d *Drivers) Retained(uid pod.UID, claim string) (p Published, name string, err error) {
	r, found, err := d.records.persistent(uid, func(r Record) bool { return r.Claim == claim && !r.Released })
	if err != nil || !found {
		return p, "", err
	}
	mounted, err := d.records.isThere(r)
	if stale, failed := r.isStale(); err == nil && (!mounted || !r.Published || stale || failed != nil) {
		err = fmt.Errorf("the pod has the PersistentVolume %q, which is not mounted any more", r.PersistentVolume)
	}
	return Published{r.Target, r.ReadOnly, r.Block}, r.PersistentVolume, err
}
