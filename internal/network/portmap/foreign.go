package portmap

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"strings"

	"github.com/google/nftables"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/network/nft"
	"podrun.io/podrun/internal/pod"
)

// foreign returns a *PortInUseError if another podrun of the machine forwards one of the ports. Its records are in
// another run directory, and no process has such a port: only its nftables tables show it. They count as long as they
// are there, also after a crash, because they divert the packets. What this process may not read counts as none.
func (t *Ports) foreign(ports []pod.HostPort) error {
	rec, err := t.records.Load()
	if err != nil {
		return err
	}
	c, err := nftables.New()
	if err != nil {
		return err
	}
	for _, f := range nft.Families() {
		tables, err := c.ListTablesOfFamily(f.Table)
		if err != nil {
			t.records.Log.Debug("other podruns' host ports cannot be read", "err", err)
			continue
		}
		for _, table := range tables {
			if table.Name == Table(rec.Bridge) || !isTable(table.Name) {
				continue
			}
			if p, meets := conflict(ports, t.portsOf(c, table)); meets {
				word := map[nftables.TableFamily]string{nftables.TableFamilyIPv6: "ip6 "}[f.Table]
				return &PortInUseError{Port: p, Table: cmp.Or(word, "ip ") + table.Name}
			}
		}
	}
	return nil
}

// isTable reports that name is one that Table returns for a podrun's bridge.
func isTable(name string) bool {
	return strings.HasPrefix(name, "podrun") && strings.HasSuffix(name, Table(""))
}

// portsOf returns the host ports in the maps of a table; none if it is removed meanwhile.
func (t *Ports) portsOf(c *nftables.Conn, table *nftables.Table) []pod.HostPort {
	var out []pod.HostPort
	for _, name := range []string{onePorts, allPorts} {
		elements, err := c.GetSetElements(&nftables.Set{Table: table, Name: name})
		if err != nil {
			t.records.Log.Debug("another podrun's host ports cannot be read", "table", table.Name, "err", err)
			continue
		}
		for _, e := range elements {
			if p, ok := portOf(e.Key); ok {
				out = append(out, p)
			}
		}
	}
	return out
}

// portOf returns the host port of a map's key: see newPortMap.
func portOf(key []byte) (p pod.HostPort, ok bool) {
	const word = 4 // what the protocol and the port are padded to
	if len(key) < 2*word {
		return p, false
	}
	address := key[word : len(key)-word]
	addr, one := netip.AddrFromSlice(address)
	if one {
		p.HostIP = addr.String()
	}
	p.Port = binary.BigEndian.Uint16(key[len(key)-word:])
	for _, protocol := range []v1.Protocol{v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP} {
		if protocolNumber(protocol) == key[0] {
			p.Protocol = protocol
		}
	}
	return p, one || len(address) == 0
}
