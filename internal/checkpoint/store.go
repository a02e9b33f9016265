package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"log/slog"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys/errtext"
)

var (
	// ErrNotFound means that a revision has no checkpoint.
	ErrNotFound = errors.New("no checkpoint")
	// ErrLater means that a later version of podrun wrote the checkpoint. It is left unchanged.
	ErrLater = errors.New("a later version of podrun wrote it")
	// ErrUIDInUse means that a revision of another pod has that UID.
	ErrUIDInUse = errors.New("the UID is another pod's")
)

// Store reads and writes checkpoints. Its methods may be called concurrently, and from several
// processes as long as only one of them writes the checkpoints of a pod.
type Store struct {
	disk Disk
	log  *slog.Logger

	mu    sync.Mutex
	files map[pod.UID]*file
	// writing is what is being written, without mu. Its entries in files stay as they are until the end, because what
	// can be read before may not survive a loss of power.
	writing writing
	// byKey holds the revisions of each pod, byID the revision of each sandbox or instance ID.
	byKey map[pod.Key][]pod.UID
	byID  map[string]pod.UID
	// scanned reports that all files have been read once.
	scanned bool
}

// file is a checkpoint file as it was last read or written.
type file struct {
	stamp Stamp
	// sum is the hash of the content; 0 if it could not be read.
	sum uint64
	// checkpoint is the last content that could be read; nil if there was none, or if the file is
	// now known not to be a checkpoint.
	checkpoint *Checkpoint
	// err is why the file cannot be read; with a checkpoint, why it cannot be read at the moment.
	err error
	// text is the content of a file that a later version of podrun wrote.
	text []byte
	// manifest is the checkpoint's pod in JSON.
	manifest json.RawMessage
}

// NewStore returns a Store for the checkpoints below the directories.
func NewStore(dirs layout.Dirs, log *slog.Logger) *Store { return NewStoreOn(osDisk{dirs}, log) }

// NewStoreOn returns a Store for the checkpoints on a disk.
func NewStoreOn(disk Disk, log *slog.Logger) *Store {
	s := &Store{
		disk: disk, log: log,
		files: map[pod.UID]*file{}, byKey: map[pod.Key][]pod.UID{}, byID: map[string]pod.UID{},
	}
	s.writing = writing{of: map[pod.UID]pod.Key{}, ended: sync.NewCond(&s.mu)}
	return s
}

// seed makes the hashes specific to this process.
var seed = maphash.MakeSeed()

func sumOf(data []byte) uint64 { return maphash.Bytes(seed, data) | 1 }

// Scan reads files that are new or have changed, and forgets those that have been removed.
// Afterwards Of finds all revisions but those that other processes create later.
func (s *Store) Scan() error {
	uids, err := s.disk.List()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	there := make(map[pod.UID]bool, len(uids))
	for _, uid := range uids {
		there[uid] = true
		_ = s.refresh(uid) // a file that cannot be read affects only its own pod
	}
	for uid := range s.files {
		if !there[uid] { // it may have been created since the directory was listed
			_ = s.refresh(uid)
		}
	}
	s.scanned = true
	return nil
}

// List returns all checkpoints that can be read, those of a pod newest first. One that cannot be
// read is logged once. If it could be read before, its earlier content is returned, and Withheld
// returns the error.
func (s *Store) List() (map[pod.Key][]*Checkpoint, error) {
	if err := s.Scan(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[pod.Key][]*Checkpoint, len(s.byKey))
	for key := range s.byKey {
		if all := s.of(key); len(all) > 0 {
			out[key] = all
		}
	}
	return out, nil
}

// Of returns the pod's checkpoints, newest first. After a Scan it reads no other pod's files.
func (s *Store) Of(key pod.Key) ([]*Checkpoint, error) {
	s.mu.Lock()
	scanned := s.scanned
	s.mu.Unlock()
	if !scanned {
		if err := s.Scan(); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, uid := range slices.Clone(s.byKey[key]) {
		if err := s.refresh(uid); err != nil && !errors.Is(err, ErrNotFound) {
			return nil, err
		}
	}
	return s.of(key), nil
}

// of returns the pod's checkpoints as they were last read. The caller holds mu.
func (s *Store) of(key pod.Key) []*Checkpoint {
	var out []*Checkpoint
	for _, uid := range s.byKey[key] {
		if f := s.files[uid]; f != nil && f.checkpoint != nil {
			out = append(out, f.checkpoint)
		}
	}
	slices.SortFunc(out, func(a, b *Checkpoint) int {
		return cmp.Or(cmp.Compare(b.Sequence, a.Sequence), cmp.Compare(a.UID(), b.UID()))
	})
	return out
}

// Get returns the revision's checkpoint; ErrNotFound if it has none.
func (s *Store) Get(uid pod.UID) (*Checkpoint, error) {
	if err := layout.CheckUID(uid); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refresh(uid); err != nil {
		return nil, err
	}
	f := s.files[uid]
	return f.checkpoint, f.err
}

// Withheld returns why a revision, which has been read, must be left as it is: its checkpoint may
// contain what cannot be read now, or not by this version of podrun. It returns nil if there is no
// such reason. (Secret values that are withheld are another subject: package secretenv.)
func (s *Store) Withheld(uid pod.UID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.files[uid]; f != nil {
		return f.withheld()
	}
	return nil
}

// withheld is Withheld for the file's revision.
func (f *file) withheld() error {
	if f.checkpoint != nil || errors.Is(f.err, ErrLater) || passing(f.err) {
		return f.err
	}
	return nil
}

// MayName reports whether the sandbox may belong to a revision, so that it must not be swept. That
// is so if one of the checkpoints that have been read names it, cannot be read at the moment, or
// was written by a later version of podrun and contains the ID anywhere in its text.
func (s *Store) MayName(id string) bool {
	if s.OfSandbox(id) != nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.files {
		if f.checkpoint == nil && passing(f.err) || bytes.Contains(f.text, []byte(id)) {
			return true
		}
	}
	return false
}

// OfSandbox returns the checkpoint, among those that have been read, that names the sandbox; nil if
// there is none.
func (s *Store) OfSandbox(id string) *Checkpoint {
	return s.naming(id, func(c *Checkpoint) bool { return c.Sandbox(id) != nil })
}

// OfInstance returns the checkpoint, among those that have been read, that names the instance; nil
// if there is none.
func (s *Store) OfInstance(id string) *Checkpoint {
	return s.naming(id, func(c *Checkpoint) bool { return c.Instance(id) != nil })
}

func (s *Store) naming(id string, names func(*Checkpoint) bool) *Checkpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.files[s.byID[id]]
	if f == nil || f.checkpoint == nil || !names(f.checkpoint) {
		return nil
	}
	return f.checkpoint
}

// Errors returns why checkpoints cannot be read, one error for each such file.
func (s *Store) Errors() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []error
	for _, f := range s.files {
		if f.err != nil {
			all = append(all, f.err)
		}
	}
	return all
}

// refresh reads the file unless it is being written or has not changed since it was last read. It returns ErrNotFound,
// or the file's withheld error; nil also for a file that is permanently unreadable, whose err says
// why. The caller holds mu.
func (s *Store) refresh(uid pod.UID) error {
	was := s.files[uid]
	if _, is := s.writing.of[uid]; is && was != nil {
		return was.withheld()
	} else if is {
		return fmt.Errorf("revision %s: %w", uid, ErrNotFound)
	}
	stamp, err := s.disk.Stat(uid)
	if err == nil && was != nil && was.stamp == stamp {
		return was.withheld()
	}
	var data []byte
	next := &file{stamp: stamp}
	if err == nil {
		data, next.stamp, err = s.disk.Read(uid)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.forget(uid)
		return fmt.Errorf("revision %s: %w", uid, ErrNotFound)
	case err != nil:
		next.stamp, next.err = Stamp{}, fmt.Errorf("reading the checkpoint of revision %s: %w", uid, err)
		if was != nil {
			next.checkpoint, next.manifest = was.checkpoint, was.manifest
		}
	default:
		if next.sum = sumOf(data); was != nil && was.sum == next.sum {
			was.stamp = next.stamp
			return was.withheld()
		}
		next.checkpoint, next.manifest, next.err = decode(uid, data)
	}
	if errors.Is(next.err, ErrLater) {
		next.text = data
	}
	if was != nil && next.withheld() != nil { // the earlier content may still be valid
		next.checkpoint, next.manifest = was.checkpoint, was.manifest
	}
	if next.err != nil && (was == nil || !errtext.Same(was.err, next.err)) {
		s.warn(uid, next)
	}
	s.put(uid, next)
	return next.withheld()
}

// warn logs that a checkpoint cannot be read, and what happens to its pod.
func (s *Store) warn(uid pod.UID, f *file) {
	what := "checkpoint cannot be read: its pod's containers are terminated; its data are kept until the pod is" +
		" started with the same UID or you remove the directory"
	switch {
	case errors.Is(f.err, ErrLater):
		what = "checkpoint is of a later version of podrun and its pod is not managed:" +
			" run that version, or remove the file"
	case f.withheld() != nil:
		what = "checkpoint cannot be read at the moment: its pod is left unchanged until it can," +
			" or until you remove the file"
	}
	s.log.Warn(what, "uid", uid, "file", s.disk.Path(uid), "err", f.err)
}

// passing reports whether the file itself is not at fault and the next attempt to read it may succeed: the process has
// too many files, or the file's server does not answer.
func passing(err error) bool {
	var errno unix.Errno
	return errors.As(err, &errno) && !slices.Contains(faults, errno)
}

// faults are the errors of a file that is damaged, or of what is no file.
var faults = []unix.Errno{
	unix.EIO, unix.EUCLEAN, unix.EBADMSG, unix.EILSEQ,
	unix.ELOOP, unix.ENOTDIR, unix.EISDIR, unix.ENXIO,
}

// put stores f as the state of the revision's file and indexes its checkpoint. The caller holds mu.
func (s *Store) put(uid pod.UID, f *file) {
	s.forget(uid)
	s.files[uid] = f
	if f.checkpoint == nil {
		return
	}
	s.byKey[f.checkpoint.Key()] = append(s.byKey[f.checkpoint.Key()], uid)
	for _, x := range f.checkpoint.Sandboxes {
		s.byID[x.ID] = uid
	}
	for _, x := range f.checkpoint.Instances {
		s.byID[x.ID] = uid
	}
}

func (s *Store) forget(uid pod.UID) {
	f := s.files[uid]
	delete(s.files, uid)
	if f == nil || f.checkpoint == nil {
		return
	}
	for _, x := range f.checkpoint.Sandboxes {
		delete(s.byID, x.ID)
	}
	for _, x := range f.checkpoint.Instances {
		delete(s.byID, x.ID)
	}
	key := f.checkpoint.Key()
	s.byKey[key] = slices.DeleteFunc(s.byKey[key], func(other pod.UID) bool { return other == uid })
	if len(s.byKey[key]) == 0 {
		delete(s.byKey, key)
	}
}

func decode(uid pod.UID, data []byte) (*Checkpoint, json.RawMessage, error) {
	var parts struct {
		Version int             `json:"version"`
		Pod     json.RawMessage `json:"pod"`
	}
	// The version comes first: the rest of a later version's format is unknown.
	if err := json.Unmarshal(data, &parts); err != nil {
		return nil, nil, fmt.Errorf("decoding the checkpoint of revision %s: %w", uid, err)
	}
	if parts.Version > Version {
		return nil, nil, fmt.Errorf("the checkpoint of revision %s has version %d, this podrun reads %d: %w",
			uid, parts.Version, Version, ErrLater)
	}
	c := &Checkpoint{}
	if err := json.Unmarshal(data, c); err != nil {
		return nil, nil, fmt.Errorf("decoding the checkpoint of revision %s: %w", uid, err)
	}
	if c.Version != Version || c.Pod == nil || c.Pod.UID != uid || c.Pod.Name == "" {
		return nil, nil, fmt.Errorf("the checkpoint of revision %s has no pod of that UID", uid)
	}
	for i := range c.Sandboxes {
		c.Sandboxes[i].UID = uid
	}
	for i := range c.Instances {
		c.Instances[i].UID = uid
	}
	return c, parts.Pod, nil
}
