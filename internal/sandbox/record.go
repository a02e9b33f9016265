package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/host"
	"podrun.io/podrun/internal/ocispec"
	"podrun.io/podrun/internal/pod"
)

const (
	intentSuffix = ".intent"
	recordName   = "sandbox.json"
)

// Record is a sandbox as List sees it.
type Record struct {
	pod.Sandbox
	Key   pod.Key
	Owner string
	// Net, IPC and UTS are the namespaces' paths; "" means the host's.
	Net, IPC, UTS string
	// PID is the path of the process namespace that all containers share; "" where each has its own.
	PID string
	// Shm is the directory of the shared memory that all containers have; "" where each has its own.
	Shm string
	// User is the path of the namespace of the pod's own users, and FirstUser the machine's user that is the first
	// of them; "" and 0 where its users are the machine's.
	User      string
	FirstUser uint32
	// CgroupDriver is that of the pod's cgroups.
	CgroupDriver ocispec.Driver
}

// entry is a sandbox on disk, as intent and as record.
type entry struct {
	Namespace   string    `json:"namespace"`
	Name        string    `json:"name"`
	UID         pod.UID   `json:"uid"`
	Attempt     int       `json:"attempt"`
	Owner       string    `json:"owner"`
	CreatedAt   time.Time `json:"createdAt"`
	HostNetwork bool      `json:"hostNetwork,omitempty"`
	HostIPC     bool      `json:"hostIPC,omitempty"`
	Shm         bool      `json:"shm,omitempty"`
	// Users is the first of the machine's users that are the pod's own; 0: its users are the machine's.
	Users uint32 `json:"users,omitempty"`
	// Systemd says that systemd makes the pod's cgroups.
	Systemd bool `json:"systemd,omitempty"`
	// PauseCgroup is where the first process of the pod's process namespace is; empty: there is none.
	PauseCgroup string `json:"pauseCgroup,omitempty"`
	// PausePID and PauseStart tell that process; of the record only.
	PausePID   int      `json:"pausePID,omitempty"`
	PauseStart uint64   `json:"pauseStart,omitempty"`
	Boot       string   `json:"boot"`
	IPs        []string `json:"ips,omitempty"` // of the record only
}

// pins are the namespaces that the sandbox has for itself.
func (e entry) pins() []string {
	var out []string
	if !e.HostNetwork {
		out = append(out, pinNet)
	}
	if !e.HostIPC {
		out = append(out, pinIPC)
	}
	if !e.HostNetwork {
		out = append(out, pinUTS)
	}
	if e.Users != 0 {
		out = append(out, pinUser)
	}
	return out
}

func (e entry) key() pod.Key { return pod.Key{Namespace: e.Namespace, Name: e.Name} }

func (e entry) sandbox(id string, ready bool) pod.Sandbox {
	return pod.Sandbox{ID: id, UID: e.UID, Attempt: e.Attempt, Ready: ready, CreatedAt: e.CreatedAt, IPs: slices.Clone(e.IPs)}
}

// cached is a parsed record and what tells that it is still the one on disk.
type cached struct {
	entry entry
	stamp stamp
}

// file is a file of the sandbox id. The directory is clean already, and List asks often.
func (s *Store) file(id, name string) string { return s.dir + "/" + id + "/" + name }

type stamp struct {
	inode uint64
	mtime unix.Timespec
}

// List returns every sandbox of which anything is left, in no order. It reads no more than it must: a
// record never changes once written.
func (s *Store) List() ([]Record, error) {
	return s.list(ids)
}

// Of returns what List would of one pod. It looks at the sandboxes that are known to be the pod's, and at those that it
// does not know: another podrun may have made them, also for a pod of this one's.
func (s *Store) Of(key pod.Key) ([]Record, error) {
	records, err := s.list(func(d *os.File) ([]string, error) {
		all, err := ids(d)
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.DeleteFunc(all, func(id string) bool {
			of, known := s.known[id]
			return known && of != key
		}), err
	})
	return slices.DeleteFunc(records, func(r Record) bool { return r.Key != key }), err
}

// knows keeps in mind whose sandbox that is.
func (s *Store) knows(id string, key pod.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[id] = key
}

// ids are the ids that have an intent in the directory of all sandboxes.
func ids(d *os.File) ([]string, error) {
	found, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range found {
		if id, isIntent := strings.CutSuffix(name, intentSuffix); isIntent && isID(id) {
			out = append(out, id)
		}
	}
	return out, nil
}

// list looks at the sandboxes that wanted finds in their directory.
func (s *Store) list(wanted func(*os.File) ([]string, error)) ([]Record, error) {
	records, err := s.listed(wanted)
	if err != nil {
		return nil, fmt.Errorf("listing sandboxes: %w", err)
	}
	for _, r := range records {
		s.knows(r.ID, r.Key)
	}
	return records, nil
}

func (s *Store) listed(wanted func(*os.File) ([]string, error)) ([]Record, error) {
	now, err := s.machine()
	if err != nil {
		return nil, err
	}
	d, err := os.Open(s.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	found, err := wanted(d)
	if err != nil {
		return nil, err
	}
	records := make([]Record, 0, len(found))
	for _, id := range found {
		below := place{fd: int(d.Fd()), path: id + "/"} // short paths from an open directory are the fast ones
		e, complete, err := s.read(id, below)
		if err != nil {
			return nil, err
		}
		if !complete {
			if e, err = s.readIntent(id); errors.Is(err, os.ErrNotExist) {
				continue // removed meanwhile
			}
			if err != nil {
				return nil, err
			}
		}
		// Not ready is asked again by the full path: the directory may have been opened before it was
		// made a mount of its own, and the pins are in the mount.
		ready := complete && (below.ready(e, now) || s.full(id).ready(e, now))
		records = append(records, s.record(id, e, ready))
	}
	return records, nil
}

func (s *Store) record(id string, e entry, ready bool) Record {
	r := Record{
		Sandbox: e.sandbox(id, ready),
		Key:     e.key(),
		Owner:   e.Owner,
	}
	if e.Systemd {
		r.CgroupDriver = ocispec.Systemd
	}
	if !e.HostIPC {
		r.IPC = s.file(id, pinIPC)
	} else {
		r.Shm = hostShm
	}
	if e.PauseCgroup != "" {
		r.PID = s.file(id, pinPID)
	}
	if e.Shm {
		r.Shm = s.file(id, shmName)
	}
	if e.Users != 0 {
		r.User, r.FirstUser = s.file(id, pinUser), e.Users
	}
	if !e.HostNetwork {
		r.Net, r.UTS = s.file(id, pinNet), s.file(id, pinUTS)
	}
	return r
}

// place is where a sandbox's files are: a path that ends in a slash, relative to an open directory.
type place struct {
	fd   int
	path string
}

func (s *Store) full(id string) place { return place{fd: unix.AT_FDCWD, path: s.path(id) + "/"} }

// ready reports that all that a complete sandbox pinned is still there.
func (p place) ready(e entry, now machine) bool {
	if e.Boot != now.boot {
		return false
	}
	for _, name := range e.pins() {
		var st unix.Stat_t
		if unix.Fstatat(p.fd, p.path+name, &st, 0) != nil || st.Dev != now.nsfs {
			return false
		}
	}
	return (!e.Shm || mountedShm(p)) && (e.PauseCgroup == "" || e.paused())
}

// machine is what readiness is judged by.
type machine struct {
	boot string
	// nsfs is the device of the filesystem of all namespaces: only a pin is on it.
	nsfs uint64
}

func thisMachine() (machine, error) {
	boot, err := host.BootID()
	if err != nil {
		return machine{}, err
	}
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &st); err != nil {
		return machine{}, fmt.Errorf("looking at the own network namespace: %w", err)
	}
	return machine{boot: boot, nsfs: st.Dev}, nil
}

// read returns the record of id; complete is false when there is none, or none that can be read: a
// power cut may leave an empty one.
func (s *Store) read(id string, at place) (e entry, complete bool, err error) {
	path := s.file(id, recordName)
	var st unix.Stat_t
	if err := unix.Fstatat(at.fd, at.path+recordName, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		if err == unix.ENOENT {
			return entry{}, false, nil
		}
		return entry{}, false, &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	now := stamp{inode: st.Ino, mtime: st.Mtim}
	s.mu.Lock()
	known, ok := s.cache[id]
	s.mu.Unlock()
	if ok && known.stamp == now {
		return known.entry, true, nil
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return entry{}, false, nil
	}
	if err != nil {
		return entry{}, false, err
	}
	if err := json.Unmarshal(b, &e); err != nil {
		s.log.Debug("a sandbox's record cannot be read; it counts as half-made", "path", path, "why", err)
		return entry{}, false, nil
	}
	s.mu.Lock()
	s.cache[id] = cached{entry: e, stamp: now}
	s.mu.Unlock()
	return e, true, nil
}

func (s *Store) readIntent(id string) (e entry, err error) {
	path := s.path(id) + intentSuffix
	text, err := os.Readlink(path)
	if err != nil {
		return entry{}, err
	}
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		return entry{}, fmt.Errorf("reading %s: %w", path, err)
	}
	return e, nil
}

// write makes the record, which completes the sandbox.
func (s *Store) write(id string, e entry) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	path := s.file(id, recordName)
	if err := host.WriteFile(path, b, 0o600); err != nil {
		return fmt.Errorf("writing the record: %w", err)
	}
	// What is known need not be read again.
	var st unix.Stat_t
	if unix.Lstat(path, &st) == nil {
		s.mu.Lock()
		s.cache[id] = cached{entry: e, stamp: stamp{inode: st.Ino, mtime: st.Mtim}}
		s.mu.Unlock()
	}
	s.step("record")
	return nil
}
