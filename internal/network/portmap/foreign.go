package portmap

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/network/netdev"
	"podrun.io/podrun/internal/network/nft"
	"podrun.io/podrun/internal/pod"
)

// Foreign returns a *PortInUseError if another podrun of the machine forwards one of the ports. It needs no lock. Who
// has published its ports and connected its pod before it calls Foreign is seen by another podrun that does the same
// at the same time, or sees it.
func (t *Ports) Foreign(ports []pod.HostPort) error {
	_, err := t.foreign(ports)
	return err
}

// foreign is Foreign. The other podrun's records are in another run directory, and no process has such a port: only its
// nftables tables show it. They count as long as a pod is connected to its bridge, also after a crash. left is a table
// that has one of the ports and no pod, with its family: its podrun has ended without removing it. What this process
// may not read counts as none.
func (t *Ports) foreign(ports []pod.HostPort) (left string, err error) {
	if len(ports) == 0 {
		return "", nil
	}
	rec, err := t.records.Load()
	if err != nil {
		return "", err
	}
	c, err := nft.New()
	if err != nil {
		return "", err
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
			p, meets := conflict(ports, t.portsOf(c, table))
			if !meets {
				continue
			}
			pods, err := hasPods(strings.TrimSuffix(table.Name, Table("")))
			if err != nil {
				return "", err
			}
			if pods {
				return "", &PortInUseError{Port: p, Table: nft.TableName(table)}
			}
			left = nft.TableName(table)
		}
	}
	return left, nil
}

// hasPods reports that a bridge is there and has a port.
func hasPods(bridge string) (bool, error) {
	links, err := netdev.Dump(netlink.LinkList)
	if err != nil {
		return false, fmt.Errorf("listing links: %w", err)
	}
	at := slices.IndexFunc(links, func(l netlink.Link) bool { return l.Attrs().Name == bridge })
	return at >= 0 && slices.ContainsFunc(links, func(l netlink.Link) bool {
		return l.Attrs().MasterIndex == links[at].Attrs().Index
	}), nil
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
