// Package records owns the directory in which all processes of a run directory share the state of
// podrun's bridge: its layout, its lock, and the record of the bridge, with which tables it has installed: any other
// table of the same name is a stranger.
//
// It does not allocate addresses or reserve host ports: package bridge writes the files of
// addresses, package portmap those of host ports. Nor does it change links or rules. LockDir is
// sys.LockDir with a limit on the wait; package cni uses it too.
//
// Start reading at Dir.
package records

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/sys"
)

const (
	recordName = "bridge.json"
	// LastName is the file with the address that was allocated last. It only says where allocation
	// continues, so losing it does no harm.
	LastName = "last"
	// AddressDir has one symbolic link per address, whose target is the ID that owns it. One call
	// creates both, or fails because the address is allocated.
	AddressDir = "ips"
	// PortDir is the directory with a file per ID that has host ports: its record, as JSON.
	PortDir = "ports"
)

// Record is the state of the network that all processes of a run directory share. An empty Bridge
// means that there is no network.
type Record struct {
	Bridge string       `json:"bridge"`
	Subnet netip.Prefix `json:"subnet"`
	// Subnet6 is the IPv6 subnet, if the machine has IPv6. A pod's address has the same offset in
	// it as in Subnet.
	Subnet6 netip.Prefix `json:"subnet6,omitzero"`
	MTU     int          `json:"mtu"`
	Boot    string       `json:"boot"`
}

// stored is the record with what only the tables' owners ask for.
type stored struct {
	Record
	// Tables are the kernel's numbers of the tables that this network has installed, by their names. A table of
	// another number is not this network's, whatever its name: another program has made it, as from a copy in a
	// file. A record of an older podrun has none.
	Tables map[string]uint64 `json:"tables,omitempty"`
}

// Subnets returns the network's subnets, IPv4 first.
func (r Record) Subnets() []netip.Prefix {
	if !r.Subnet6.IsValid() {
		return []netip.Prefix{r.Subnet}
	}
	return []netip.Prefix{r.Subnet, r.Subnet6}
}

// Dir is the directory of a network's records. Its lock serializes changes of the network.
type Dir struct {
	Path string
	Boot func() (string, error) // returns the kernel's boot ID
	Log  *slog.Logger
}

// Lock creates the directory if it is missing and locks it.
func (d *Dir) Lock(ctx context.Context) (*sys.Lock, error) {
	if err := os.MkdirAll(d.Path, layout.ModePrivate); err != nil {
		return nil, err
	}
	return LockDir(ctx, d.Path, layout.ModePrivate, (*sys.Lock).Unlock)
}

// LockExisting locks the directory. A missing one is os.ErrNotExist.
func (d *Dir) LockExisting(ctx context.Context) (*sys.Lock, error) {
	return lockExisting(ctx, d.Path)
}

// Load returns the record, or an empty one if there is none. A record that cannot be decoded counts
// as none, because a power cut may leave one.
func (d *Dir) Load() (Record, error) {
	s, err := d.load()
	return s.Record, err
}

func (d *Dir) load() (stored, error) {
	var s stored
	text, err := os.ReadFile(filepath.Join(d.Path, recordName))
	if errors.Is(err, os.ErrNotExist) {
		return stored{}, nil
	}
	if err != nil {
		return stored{}, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		d.Log.Warn("network record cannot be decoded; it is created anew", "err", err)
		return stored{}, nil
	}
	return s, nil
}

// Save replaces the record. The caller holds the lock.
func (d *Dir) Save(rec Record) error {
	s, err := d.load()
	if err != nil {
		return err
	}
	if s.Boot != rec.Boot { // the kernel counts anew
		s.Tables = nil
	}
	s.Record = rec
	return d.save(s)
}

func (d *Dir) save(s stored) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return sys.ReplaceFile(filepath.Join(d.Path, recordName), text, 0o600)
}

// Idle reports whether no ID has an address or a host port. The caller holds the lock.
func (d *Dir) Idle() (bool, error) {
	for _, dir := range []string{AddressDir, PortDir} {
		left, err := os.ReadDir(filepath.Join(d.Path, dir))
		if err != nil && !errors.Is(err, os.ErrNotExist) || len(left) > 0 {
			return false, err
		}
	}
	return true, nil
}

// Remove removes all files, the network's record last, and then the directory.
func (d *Dir) Remove() error {
	for _, name := range []string{AddressDir, PortDir, LastName, recordName + ".tmp", recordName, "."} {
		err := os.Remove(filepath.Join(d.Path, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
