package csi

import (
	"cmp"
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
	"sync"

	"github.com/moby/sys/mountinfo"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

// Record is a volume for which a driver has been called, or is about to be. It is on disk before the call and until
// the volume is unpublished.
type Record struct {
	Driver string `json:"driver"`
	// Socket is where the driver was when it was called.
	Socket string `json:"socket"`
	// ID is the driver's name for the volume, and Target where it is mounted.
	ID     string  `json:"id"`
	Target string  `json:"target"`
	UID    pod.UID `json:"uid"`
	Pod    pod.Key `json:"pod"`
	Volume string  `json:"volume"` // its name in the pod
	// PersistentVolume is its name if it has one, Claim is that of its claim, ReadOnly what both say, Block that it is
	// a device, Boot since when its node is there, Device which one that is, and Staging where it is staged, for all
	// pods of the machine; empty if it is not.
	PersistentVolume string `json:"persistentVolume,omitempty"`
	Claim            string `json:"claim,omitempty"`
	ReadOnly         bool   `json:"readOnly,omitempty"`
	Block            bool   `json:"block,omitempty"`
	Boot             string `json:"boot,omitempty"`
	Device           string `json:"device,omitempty"`
	Staging          string `json:"staging,omitempty"`
	// Published is set when the driver has confirmed that it is mounted, and it belongs to the pod's fsGroup.
	Published bool `json:"published,omitempty"`
	// Released is set when the pod is gone: the volume is to be unpublished, also before a pod with the same UID
	// may have it.
	Released bool `json:"released,omitempty"`
}

const suffix = ".json"

// file returns the name of the record's file. There is no "_" in the name of a volume, and the name of an inline one is
// shorter than a hash. The name of a PersistentVolume may be too long for a file's.
func (r Record) file() string { return string(r.UID) + "_" + r.name() + suffix }

func (r Record) name() string {
	if r.PersistentVolume != "" {
		return digest(r.PersistentVolume)
	}
	return r.Volume
}

// digest returns the SHA-256 of a text in hexadecimal digits.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// damaged is a record that cannot be read. The name of its file says whose it is, so that it stops nobody else.
type damaged struct {
	uid  pod.UID
	name string // as in Record.name
	path string
	err  error
}

func (d *damaged) Error() string {
	return fmt.Sprintf("reading the record %s: %v; if that does not end, remove the file when no pod has the UID %s any more and "+
		"nothing is mounted for it (findmnt | grep %s)", d.path, d.err, d.uid, d.uid)
}

func (d *damaged) Unwrap() error { return d.err }

// store has the records, a file each.
type store struct {
	dirs   layout.Dirs
	dir    string
	kindOn func(dir string) (string, error) // Machine.KindOn
	mu     sync.Mutex                       // held while a record is read and written
}

func newStore(dirs layout.Dirs) *store {
	return &store{dirs: dirs, dir: layout.CSIVolumes(dirs), kindOn: thisMachine.KindOn}
}

func (s *store) path(r Record) string { return filepath.Join(s.dir, r.file()) }

// Records returns the volumes for which drivers have been called, in the order of their pods. With an error these are
// those whose records can be read.
func Records(dirs layout.Dirs) ([]Record, error) {
	all, err := newStore(dirs).list("")
	slices.SortFunc(all, func(a, b Record) int {
		return cmp.Or(a.Pod.Compare(b.Pod), cmp.Compare(a.UID, b.UID), cmp.Compare(a.Volume, b.Volume))
	})
	return all, err
}

// PersistentRecords returns the records of PersistentVolumes. An error is that a pod may have one whose record cannot
// be read.
func PersistentRecords(dirs layout.Dirs) ([]Record, error) { return newStore(dirs).persistents() }

// list returns the records of a pod revision; of all if the UID is "". With an error these are those that can be read.
func (s *store) list(uid pod.UID) ([]Record, error) {
	all, unread, err := s.scan(uid)
	errs := []error{err}
	for _, d := range unread {
		errs = append(errs, d)
	}
	return all, errors.Join(errs...)
}

// persistents is PersistentRecords.
func (s *store) persistents() ([]Record, error) {
	all, unread, err := s.scan("")
	errs := []error{err}
	for _, d := range unread {
		if s.mayBeUsed(d) {
			errs = append(errs, d)
		}
	}
	return slices.DeleteFunc(all, func(r Record) bool { return r.PersistentVolume == "" }), errors.Join(errs...)
}

// mayBeUsed reports whether a record that cannot be read may be that of a PersistentVolume that somebody uses: its pod
// is on the machine, or something is mounted for it. Otherwise nobody is to wait for it: it may never be read again.
func (s *store) mayBeUsed(d *damaged) bool {
	if len(d.name) != len(digest("")) {
		return false // that of an inline volume, which is its pod's alone
	}
	if !s.isGone(d.uid) {
		return true
	}
	mounted, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		is := slices.Contains(strings.Split(m.Mountpoint, "/"), string(d.uid))
		return !is, is
	})
	return err != nil || len(mounted) > 0
}

// isGone reports whether a pod has been removed, with its directory.
func (s *store) isGone(uid pod.UID) bool {
	if _, err := os.Lstat(s.dirs.Pods()); err != nil {
		return false
	}
	_, err := os.Lstat(s.dirs.Pod(uid))
	return errors.Is(err, fs.ErrNotExist)
}

// isMounted reports whether something is mounted at a path. It does not access that.
func (s *store) isMounted(path string) (bool, error) {
	kind, err := s.kindOn(path)
	return kind != "", err
}

// mayBeMounted reports whether something may be mounted at a path: a driver may fail after it has mounted the volume,
// whatever its error says.
func (s *store) mayBeMounted(path string) bool {
	mounted, err := s.isMounted(path)
	return mounted || err != nil
}

// scan returns the records of a pod revision, or all of them, and those that cannot be read.
func (s *store) scan(uid pod.UID) (all []Record, unread []*damaged, err error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("listing volumes of CSI drivers: %w", err)
	}
	for _, e := range entries {
		name, is := strings.CutSuffix(e.Name(), suffix)
		at := strings.LastIndex(name, "_")
		if !is || at < 1 || uid != "" && name[:at] != string(uid) {
			continue
		}
		r, found, err := s.read(Record{UID: pod.UID(name[:at]), Volume: name[at+1:]})
		var d *damaged
		if errors.As(err, &d) {
			unread = append(unread, d)
		}
		if found {
			all = append(all, r)
		}
	}
	return all, unread, nil
}

// read returns the record of a volume as it is on disk, if there is one. Its errors are damaged ones.
func (s *store) read(of Record) (r Record, found bool, err error) {
	text, err := os.ReadFile(s.path(of))
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err == nil && r.file() != of.file() {
		err = fmt.Errorf("it is that of volume %q of a pod with the UID %s", r.Volume, r.UID)
	}
	if err != nil {
		return r, false, &damaged{of.UID, of.name(), s.path(of), err}
	}
	return r, true, nil
}

// update changes the record of a volume, if there is one.
func (s *store) update(of Record, change func(*Record)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, found, err := s.read(of)
	if err != nil || !found {
		return err
	}
	was := r
	if change(&r); r == was {
		return nil
	}
	return s.save(r)
}

// create writes the record of a volume that is about to be published, and reports whether there was one.
func (s *store) create(r Record) (recorded bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, recorded, err := s.read(r)
	if err != nil {
		return recorded, err
	}
	if err := os.MkdirAll(s.dir, layout.ModePrivate); err != nil {
		return recorded, err
	}
	if r.Published, r.Released = before.Published, before.Released; r == before {
		return recorded, nil
	}
	return recorded, s.save(r)
}

func (s *store) save(r Record) error {
	text, err := json.Marshal(r)
	if err == nil {
		err = sys.WriteDurable(s.path(r), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("recording a volume of a CSI driver: %w", err)
	}
	return nil
}

// forget removes the record of a volume that is not published, and the directories that were made for it. Those that
// are not empty are left: they are not podrun's.
func (s *store) forget(r Record) error {
	dir := r.Target
	for range 5 { // …/pods/UID/volumes/kubernetes.io~csi/NAME/mount
		// …/csi/volumeDevices/publish/NAME/UID, of which drivers may have the first ones in containers
		if !isEmpty(dir) || r.Block && filepath.Base(dir) == publishName {
			break
		}
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			break
		}
		dir = filepath.Dir(dir)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.Remove(s.path(r)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
