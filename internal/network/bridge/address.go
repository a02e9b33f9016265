package bridge

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/network/records"
)

// ipam allocates the pods' addresses, each recorded in a symbolic link. An IPv6 address is not
// recorded: it has the offset of the pod's IPv4 address.
type ipam struct {
	records *records.Dir
	// foreign limits the warning that a file in the address directory is not named by an address to
	// one per process.
	foreign sync.Once
}

// allocate gives id an address: the one it has, else the next free one after the last one
// allocated, so that a freed address stays unused as long as possible. The caller holds the lock.
func (i *ipam) allocate(rec records.Record, id string) (netip.Addr, error) {
	dir := filepath.Join(i.records.Path, records.AddressDir)
	if err := os.Mkdir(dir, layout.ModePrivate); err != nil && !errors.Is(err, os.ErrExist) {
		return netip.Addr{}, err
	}
	held, err := i.owners()
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
	addr := i.last()
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
		return addr, os.WriteFile(filepath.Join(i.records.Path, records.LastName), []byte(addr.String()), 0o600)
	}
	return netip.Addr{}, fmt.Errorf("no free address in %s: all %d are taken", rec.Subnet, size)
}

// last returns the address that was allocated last; the zero Addr if that is not recorded.
func (i *ipam) last() netip.Addr {
	text, err := os.ReadFile(filepath.Join(i.records.Path, records.LastName))
	if err != nil {
		return netip.Addr{}
	}
	addr, err := netip.ParseAddr(strings.TrimSpace(string(text)))
	if err != nil {
		return netip.Addr{}
	}
	return addr
}

// owners returns the ID that owns each allocated address.
func (i *ipam) owners() (map[netip.Addr]string, error) {
	dir := filepath.Join(i.records.Path, records.AddressDir)
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
			i.foreign.Do(func() {
				i.records.Log.Warn("file name is not an IP address; remove the file", "file", filepath.Join(dir, name))
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

// release frees the address of id. The caller holds the lock.
func (i *ipam) release(id string) error {
	held, err := i.owners()
	if err != nil {
		return err
	}
	for addr, owner := range held {
		if owner != id {
			continue
		}
		if err := os.Remove(filepath.Join(i.records.Path, records.AddressDir, addr.String())); err != nil {
			return err
		}
	}
	return nil
}

// releaseAll frees all addresses.
func (i *ipam) releaseAll() error {
	held, err := i.owners()
	if err != nil {
		return err
	}
	for addr := range held {
		if err := os.Remove(filepath.Join(i.records.Path, records.AddressDir, addr.String())); err != nil {
			return err
		}
	}
	return nil
}
