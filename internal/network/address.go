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
	// lastName is the file with the address that was allocated last. It only says where allocation
	// continues, so losing it does no harm.
	lastName = "last"
	// addressDir has one symbolic link per address, whose target is the ID that owns it. One call
	// creates both, or fails because the address is allocated.
	addressDir = "ips"
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

// current returns the record of this boot. A record of another boot is obsolete, because none of
// that boot's namespaces exist any more: current then removes all addresses and returns an empty
// record. The caller holds the lock.
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

// load returns the record, or an empty one if there is none. A record that cannot be decoded counts
// as none, because a power cut may leave one.
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
		b.log.Warn("network record cannot be decoded; it is created anew", "err", err)
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

// allocate gives id an address: the one it has, else the next free one after the last one
// allocated, so that a freed address stays unused as long as possible. The caller holds the lock.
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
	size := 1<<(32-rec.Subnet.Bits()) - 3 // without the network, gateway and broadcast addresses
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

// last returns the address that was allocated last; the zero Addr if that is not recorded.
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

// addresses returns the ID that owns each allocated address.
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
			b.foreign.Do(func() {
				b.log.Warn("file name is not an IP address; remove the file", "file", filepath.Join(dir, name))
			})
			continue
		}
		owner, err := os.Readlink(filepath.Join(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // released meanwhile
		}
		if err != nil {
			return nil, err
		}
		held[addr] = owner
	}
	return held, nil
}

// Holders returns the IDs that have an address or a host port, possibly more than once. It takes no
// lock, so it never waits; an ID that is added or removed meanwhile may be among them or not.
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

// idle reports whether no ID has an address or a host port. The caller holds the lock.
func (b *Bridge) idle() (bool, error) {
	for _, dir := range []string{addressDir, portDir} {
		left, err := os.ReadDir(filepath.Join(b.dir, dir))
		if err != nil && !errors.Is(err, os.ErrNotExist) || len(left) > 0 {
			return false, err
		}
	}
	return true, nil
}

// release frees the address of id. The caller holds the lock.
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

// removeRecords removes all files, the network's record last, and then the directory.
func (b *Bridge) removeRecords() error {
	for _, name := range []string{addressDir, portDir, lastName, recordName + ".tmp", recordName, "."} {
		err := os.Remove(filepath.Join(b.dir, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
