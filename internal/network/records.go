package network

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/sys"
)

const (
	recordName = "bridge.json"
	// lastName is the file with the address that was allocated last. It only says where allocation
	// continues, so losing it does no harm.
	lastName = "last"
	// addressDir has one symbolic link per address, whose target is the ID that owns it. One call
	// creates both, or fails because the address is allocated.
	addressDir = "ips"
	// portDir is the directory with a file per ID that has host ports: its portRecord, as JSON.
	portDir = "ports"
)

// record is the state of the network that all processes of a run directory share. An empty Bridge
// means that there is no network.
type record struct {
	Bridge string       `json:"bridge"`
	Subnet netip.Prefix `json:"subnet"`
	// Subnet6 is the IPv6 subnet, if the machine has IPv6. A pod's address has the same offset in
	// it as in Subnet.
	Subnet6 netip.Prefix `json:"subnet6,omitzero"`
	MTU     int          `json:"mtu"`
	Boot    string       `json:"boot"`
}

// subnets returns the network's subnets, IPv4 first.
func (r record) subnets() []netip.Prefix {
	if !r.Subnet6.IsValid() {
		return []netip.Prefix{r.Subnet}
	}
	return []netip.Prefix{r.Subnet, r.Subnet6}
}

// recordDir is the directory of a network's records. Its lock serializes changes of the network.
type recordDir struct {
	path string
	boot func() (string, error) // returns the kernel's boot ID
	log  *slog.Logger
}

// lock creates the directory if it is missing and locks it.
func (d *recordDir) lock(ctx context.Context) (*sys.Lock, error) {
	if err := os.MkdirAll(d.path, layout.ModePrivate); err != nil {
		return nil, err
	}
	return lockDir(ctx, d.path, layout.ModePrivate, (*sys.Lock).Unlock)
}

// lockExisting locks the directory. A missing one is os.ErrNotExist.
func (d *recordDir) lockExisting(ctx context.Context) (*sys.Lock, error) {
	return lockExisting(ctx, d.path)
}

// load returns the record, or an empty one if there is none. A record that cannot be decoded counts
// as none, because a power cut may leave one.
func (d *recordDir) load() (record, error) {
	var rec record
	text, err := os.ReadFile(filepath.Join(d.path, recordName))
	if errors.Is(err, os.ErrNotExist) {
		return record{}, nil
	}
	if err != nil {
		return record{}, err
	}
	if err := json.Unmarshal(text, &rec); err != nil {
		d.log.Warn("network record cannot be decoded; it is created anew", "err", err)
		return record{}, nil
	}
	return rec, nil
}

func (d *recordDir) save(rec record) error {
	text, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	return sys.WriteFile(filepath.Join(d.path, recordName), text, 0o600)
}

// idle reports whether no ID has an address or a host port. The caller holds the lock.
func (d *recordDir) idle() (bool, error) {
	for _, dir := range []string{addressDir, portDir} {
		left, err := os.ReadDir(filepath.Join(d.path, dir))
		if err != nil && !errors.Is(err, os.ErrNotExist) || len(left) > 0 {
			return false, err
		}
	}
	return true, nil
}

// remove removes all files, the network's record last, and then the directory.
func (d *recordDir) remove() error {
	for _, name := range []string{addressDir, portDir, lastName, recordName + ".tmp", recordName, "."} {
		err := os.Remove(filepath.Join(d.path, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
