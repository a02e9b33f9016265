package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/sys"
)

const (
	recordName = "bridge.json"
	// lastName holds the address given out last; it is only a place to go on from.
	lastName = "last"
	// addressDir has a symbolic link per address, whose target is the id that has it: one call makes
	// both, or fails because the address is taken.
	addressDir = "ips"
)

// record is what all processes of a run directory agree on. Without a Bridge there is none.
type record struct {
	Bridge string       `json:"bridge"`
	Subnet netip.Prefix `json:"subnet"`
	// Subnet6 is for IPv6, where the machine has any; a pod has the same place in it as in Subnet.
	Subnet6 netip.Prefix `json:"subnet6,omitzero"`
	MTU     int          `json:"mtu"`
	Boot    string       `json:"boot"`
}

// subnets are the network's, IPv4 first.
func (r record) subnets() []netip.Prefix {
	if !r.Subnet6.IsValid() {
		return []netip.Prefix{r.Subnet}
	}
	return []netip.Prefix{r.Subnet, r.Subnet6}
}

// current returns the record of this boot. One of another boot is worthless and goes with its
// addresses: no namespace of then is there any more. The caller holds the lock.
func (b *Bridge) current() (record, error) {
	boot, err := b.boot()
	if err != nil {
		return record{}, err
	}
	rec, err := b.load()
	if err != nil || rec.Boot == boot {
		return rec, err
	}
	return record{}, b.removeAddresses()
}

// load returns the record, or none; one that cannot be read is none, as a power cut may leave it.
func (b *Bridge) load() (record, error) {
	var rec record
	text, err := os.ReadFile(filepath.Join(b.dir, recordName))
	if errors.Is(err, os.ErrNotExist) {
		return record{}, nil
	}
	if err != nil {
		return record{}, err
	}
	if err := json.Unmarshal(text, &rec); err != nil {
		b.log.Warn("the network's record cannot be read and is made anew", "why", err)
		return record{}, nil
	}
	return rec, nil
}

func (b *Bridge) save(rec record) error {
	text, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	return sys.WriteFile(filepath.Join(b.dir, recordName), text, 0o600)
}

// allocate gives id an address: the one it has, else the next after the last given, so that a freed one
// rests as long as possible. The caller holds the lock.
func (b *Bridge) allocate(rec record, id string) (netip.Addr, error) {
	dir := filepath.Join(b.dir, addressDir)
	if err := os.Mkdir(dir, layout.ModePrivate); err != nil && !errors.Is(err, os.ErrExist) {
		return netip.Addr{}, err
	}
	held, err := b.addresses()
	if err != nil {
		return netip.Addr{}, err
	}
	for addr, owner := range held {
		if owner == id && rec.Subnet.Contains(addr) {
			return addr, nil
		}
	}
	first := gatewayOf(rec.Subnet).Next()
	size := 1<<(32-rec.Subnet.Bits()) - 3 // without network, gateway and broadcast
	addr := b.last()
	for range size {
		addr = addr.Next()
		if !rec.Subnet.Contains(addr) || !rec.Subnet.Contains(addr.Next()) {
			addr = first
		}
		if _, taken := held[addr]; taken || addr.Less(first) {
			continue
		}
		if err := os.Symlink(id, filepath.Join(dir, addr.String())); err != nil {
			return netip.Addr{}, err
		}
		return addr, os.WriteFile(filepath.Join(b.dir, lastName), []byte(addr.String()), 0o600)
	}
	return netip.Addr{}, fmt.Errorf("no free address in %s: all %d are taken", rec.Subnet, size)
}

// last returns the address given out last; the zero one when that is not known.
func (b *Bridge) last() netip.Addr {
	text, err := os.ReadFile(filepath.Join(b.dir, lastName))
	if err != nil {
		return netip.Addr{}
	}
	addr, err := netip.ParseAddr(strings.TrimSpace(string(text)))
	if err != nil {
		return netip.Addr{}
	}
	return addr
}

// addresses returns who has which address.
func (b *Bridge) addresses() (map[netip.Addr]string, error) {
	dir := filepath.Join(b.dir, addressDir)
	d, err := os.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	d.Close()
	if err != nil {
		return nil, err
	}
	held := make(map[netip.Addr]string, len(names))
	for _, name := range names {
		addr, err := netip.ParseAddr(name)
		if err != nil {
			b.foreign.Do(func() { b.log.Warn("not an address; remove it", "file", filepath.Join(dir, name)) })
			continue
		}
		owner, err := os.Readlink(filepath.Join(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // freed meanwhile
		}
		if err != nil {
			return nil, err
		}
		held[addr] = owner
	}
	return held, nil
}

// Holders returns the ids that have an address or a host port. It takes no lock, so that it waits for nobody: an id
// that comes or goes meanwhile may be among them or not.
func (b *Bridge) Holders() ([]string, error) {
	held, err := b.addresses()
	if err != nil {
		return nil, err
	}
	ids := slices.Collect(maps.Values(held))
	ports, err := os.ReadDir(filepath.Join(b.dir, portDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return ids, err
	}
	for _, e := range ports {
		ids = append(ids, e.Name())
	}
	return ids, nil
}

// idle reports that nobody has an address or a port. The caller holds the lock.
func (b *Bridge) idle() (bool, error) {
	for _, dir := range []string{addressDir, portDir} {
		left, err := os.ReadDir(filepath.Join(b.dir, dir))
		if err != nil && !errors.Is(err, os.ErrNotExist) || len(left) > 0 {
			return false, err
		}
	}
	return true, nil
}

// release frees the address that id has. The caller holds the lock.
func (b *Bridge) release(id string) error {
	held, err := b.addresses()
	if err != nil {
		return err
	}
	for addr, owner := range held {
		if owner != id {
			continue
		}
		if err := os.Remove(filepath.Join(b.dir, addressDir, addr.String())); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bridge) removeAddresses() error {
	held, err := b.addresses()
	if err != nil {
		return err
	}
	for addr := range held {
		if err := os.Remove(filepath.Join(b.dir, addressDir, addr.String())); err != nil {
			return err
		}
	}
	return nil
}

// removeRecords removes all files, the record last, and the directory.
func (b *Bridge) removeRecords() error {
	for _, name := range []string{addressDir, portDir, lastName, recordName + ".tmp", recordName, "."} {
		err := os.Remove(filepath.Join(b.dir, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
