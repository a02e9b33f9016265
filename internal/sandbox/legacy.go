package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

// The former version of podrun recorded its sandboxes beside the pins: <id>.intent is a symbolic
// link whose target is a legacyEntry in JSON, and <id>/sandbox.json is the legacyEntry of a
// complete sandbox.
const (
	intentSuffix = ".intent"
	recordName   = "sandbox.json"
)

// Legacy is a sandbox that the former version of podrun created, as needed for its pod's first
// checkpoint.
type Legacy struct {
	Key pod.Key
	// Owner is the kind of run that created it: "serve" or "once".
	Owner   string
	Sandbox pod.Sandbox
}

// legacyEntry is a sandbox in the former version's files.
type legacyEntry struct {
	Namespace   string    `json:"namespace"`
	Name        string    `json:"name"`
	UID         pod.UID   `json:"uid"`
	Attempt     int       `json:"attempt"`
	Owner       string    `json:"owner"`
	CreatedAt   time.Time `json:"createdAt"`
	HostNetwork bool      `json:"hostNetwork"`
	HostIPC     bool      `json:"hostIPC"`
	Shm         bool      `json:"shm"`
	Users       uint32    `json:"users"`
	Systemd     bool      `json:"systemd"`
	PauseCgroup string    `json:"pauseCgroup"`
	Boot        string    `json:"boot"`
	// Only in the record.
	PausePID   int      `json:"pausePID"`
	PauseStart uint64   `json:"pauseStart"`
	IPs        []string `json:"ips"`
}

func (e legacyEntry) legacy(id string, complete bool) Legacy {
	details := pod.SandboxDetails{
		Complete:    complete,
		HostNetwork: e.HostNetwork,
		HostIPC:     e.HostIPC,
		Shm:         e.Shm,
		FirstUser:   e.Users,
		Systemd:     e.Systemd,
		PausePID:    e.PausePID,
		PauseStart:  e.PauseStart,
		Group:       string(e.UID) + "." + strconv.Itoa(e.Attempt),
	}
	if e.PauseCgroup != "" {
		details.PauseParent = path.Dir(e.PauseCgroup)
	}
	return Legacy{
		Key:   pod.Key{Namespace: e.Namespace, Name: e.Name},
		Owner: e.Owner,
		Sandbox: pod.Sandbox{
			ID: id, UID: e.UID, Attempt: e.Attempt, Boot: e.Boot, CreatedAt: e.CreatedAt, IPs: e.IPs, Details: details,
		},
	}
}

// Legacy returns the sandboxes that the former version created and that ForgetLegacy was not called
// for. If some cannot be read, it returns an error together with the others.
func (s *Store) Legacy() ([]Legacy, error) {
	found, err := names(s.dir.root)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var out []Legacy
	errs := []error{err}
	for _, name := range found {
		id, isIntent := strings.CutSuffix(name, intentSuffix)
		if !isIntent || !isID(id) {
			continue
		}
		entry, complete, err := s.dir.readLegacy(id)
		if err != nil {
			errs = append(errs, err)
		} else if entry != nil {
			out = append(out, entry.legacy(id, complete))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return out, fmt.Errorf("listing the former version's sandboxes: %w", err)
	}
	return out, nil
}

// readLegacy returns what the former version recorded of a sandbox; nil if nothing. A record that
// cannot be parsed counts as missing, because a power failure may leave one.
func (d *directory) readLegacy(id string) (e *legacyEntry, complete bool, err error) {
	if e, err = d.readIntent(id); err != nil || e == nil {
		return nil, false, err
	}
	text, err := os.ReadFile(d.file(id, recordName))
	if errors.Is(err, os.ErrNotExist) {
		return e, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	var record legacyEntry
	if json.Unmarshal(text, &record) != nil {
		return e, false, nil
	}
	return &record, true, nil
}

// readIntent returns the former version's intent of a sandbox; nil if there is none.
func (d *directory) readIntent(id string) (*legacyEntry, error) {
	text, err := readLink(d.intent(id))
	if err != nil || text == "" {
		return nil, err
	}
	var e legacyEntry
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		return nil, fmt.Errorf("reading %s: %w", d.intent(id), err)
	}
	return &e, nil
}

func (d *directory) intent(id string) string { return d.path(id) + intentSuffix }

// ForgetLegacy removes the former version's files of a sandbox; the caller has saved the sandbox in
// a checkpoint. It succeeds for a sandbox that the former version did not create, and if called
// again. The sandbox itself is not changed.
func (s *Store) ForgetLegacy(id string) error {
	if err := errors.Join(checkID(id), s.dir.forgetLegacy(id)); err != nil {
		return fmt.Errorf("forgetting the former version's sandbox %s: %w", id, err)
	}
	return nil
}

func (d *directory) forgetLegacy(id string) error {
	all, err := sys.LockExisting(d.root)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer all.Unlock()
	e, err := d.readIntent(id)
	if err != nil {
		return err
	}
	if e != nil {
		if err := d.convertLegacy(id, e); err != nil {
			return err
		}
	}
	// The intent first: without it, the sandbox is never taken for one that is half created.
	if err := removeFile(d.intent(id)); err != nil {
		return err
	}
	if err := d.removeRecord(id); err != nil {
		return err
	}
	return d.removeEmptyDir()
}

// convertLegacy creates the files of this version in the directory of a sandbox of the former
// version, if the directory exists.
func (d *directory) convertLegacy(id string, e *legacyEntry) error {
	links := map[string]string{}
	if e.Users != 0 {
		links[firstUserName] = strconv.FormatUint(uint64(e.Users), 10)
	}
	if e.PauseCgroup != "" {
		links[pauseCgroupName] = e.PauseCgroup
	}
	for name, target := range links {
		err := os.Symlink(target, d.file(id, name))
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

// removeRecord removes the former version's record of a sandbox.
func (d *directory) removeRecord(id string) error {
	return errors.Join(removeFile(d.file(id, recordName)), removeFile(d.file(id, recordName+".tmp")))
}
