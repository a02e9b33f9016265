package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"podrun.io/podrun/internal/host"
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
	Boot        string    `json:"boot"`
	IPs         []string  `json:"ips,omitempty"` // of the record only
}

// pins are the namespaces that the sandbox has for itself.
func (e entry) pins() []string {
	if e.HostNetwork {
		return []string{pinIPC}
	}
	return allPins[:]
}

func (e entry) sandbox(id string, ready bool) pod.Sandbox {
	return pod.Sandbox{ID: id, UID: e.UID, Attempt: e.Attempt, Ready: ready, CreatedAt: e.CreatedAt, IPs: e.IPs}
}

// cached is a parsed record and what tells that it is still the one on disk.
type cached struct {
	entry entry
	stamp stamp
}

type stamp struct {
	inode uint64
	mtime syscall.Timespec
}

// List returns every sandbox of which anything is left, in no order. It reads no more than it must: a
// record never changes once written.
func (s *Store) List() ([]Record, error) {
	records, err := s.list()
	if err != nil {
		return nil, fmt.Errorf("listing sandboxes: %w", err)
	}
	return records, nil
}

func (s *Store) list() ([]Record, error) {
	boot, err := s.boot()
	if err != nil {
		return nil, err
	}
	found, err := names(s.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var records []Record
	for _, name := range found {
		id, isIntent := strings.CutSuffix(name, intentSuffix)
		if !isIntent || !isID(id) {
			continue
		}
		e, complete, err := s.read(id)
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
		records = append(records, s.record(id, e, complete && s.ready(id, e, boot)))
	}
	return records, nil
}

func (s *Store) record(id string, e entry, ready bool) Record {
	r := Record{
		Sandbox: e.sandbox(id, ready),
		Key:     pod.Key{Namespace: e.Namespace, Name: e.Name},
		Owner:   e.Owner,
	}
	dir := s.path(id)
	r.IPC = filepath.Join(dir, pinIPC)
	if !e.HostNetwork {
		r.Net, r.UTS = filepath.Join(dir, pinNet), filepath.Join(dir, pinUTS)
	}
	return r
}

// ready reports that all that a complete sandbox pinned is still there.
func (s *Store) ready(id string, e entry, boot string) bool {
	if e.Boot != boot {
		return false
	}
	for _, name := range e.pins() {
		if !pinned(s.path(id) + "/" + name) {
			return false
		}
	}
	return true
}

// read returns the record of id; complete is false when there is none, or none that can be read: a
// power cut may leave an empty one.
func (s *Store) read(id string) (e entry, complete bool, err error) {
	path := s.path(id) + "/" + recordName
	var st syscall.Stat_t
	if err := syscall.Lstat(path, &st); err != nil {
		if errors.Is(err, os.ErrNotExist) {
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
	if err := host.WriteFile(filepath.Join(s.path(id), recordName), b, 0o600); err != nil {
		return fmt.Errorf("writing the record: %w", err)
	}
	s.step("record")
	return nil
}
