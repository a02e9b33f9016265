package network

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// forwarding is a host port and the pod's address and port that it is forwarded to.
type forwarding struct {
	protocol byte
	at       netip.Addr // the machine's address; unspecified: all of its family
	port     uint16
	to       netip.AddrPort
}

// destinationChanged is the bit of a connection's status which says that its destination was
// translated (IPS_DST_NAT in linux/netfilter/nf_conntrack_common.h).
const destinationChanged = 1 << 5

// Consecutive nftables registers of 4 bytes each.
const (
	firstWord = 8 + iota
	secondWord
)

// portTable returns the name of the nftables table of a bridge's host ports.
func portTable(bridge string) string { return bridge + "-ports" }

// addPorts adds ports to the bridge's tables of host ports. It needs a fifth of the time of
// publishPorts, because the kernel does not have to wait until the replaced objects are unused. It
// fails if the tables do not exist or have other targets for these ports.
func addPorts(bridge string, ports []forwarding) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	for _, f := range families() {
		m, err := newPortMap(bridge, f, ports)
		if err != nil {
			return err
		}
		for set, elements := range map[*nftables.Set][]nftables.SetElement{m.one: m.inOne, m.all: m.in} {
			if len(elements) == 0 {
				continue
			}
			if err := c.SetAddElements(set, elements); err != nil {
				return err
			}
		}
	}
	return c.Flush()
}

// publishPorts replaces the contents of the bridge's tables of host ports; without ports it removes
// the tables. It is one transaction, and existing connections continue.
func publishPorts(bridge string, subnets []netip.Prefix, ports []forwarding) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	for _, subnet := range subnets {
		m, err := newPortMap(bridge, familyOf(subnet.Addr()), ports)
		if err != nil {
			return err
		}
		// Added first, so that deleting it never fails.
		c.AddTable(m.table)
		c.DelTable(m.table)
		if len(m.in)+len(m.inOne) == 0 {
			continue
		}
		c.AddTable(m.table)
		if err := m.addForwarding(c); err != nil {
			return err
		}
		addReturnWays(c, m.table, bridge, subnet)
	}
	return c.Flush()
}

// portMap is the two maps of a table from a host port to its target: one for ports at a single
// address, one for ports at all addresses. A packet that the first map does not match is looked up
// in the second.
type portMap struct {
	family    family
	table     *nftables.Table
	one, all  *nftables.Set
	inOne, in []nftables.SetElement
}

// newPortMap returns the maps of one family, with the ports of that family.
func newPortMap(bridge string, f family, ports []forwarding) (portMap, error) {
	t := &nftables.Table{Family: f.table, Name: portTable(bridge)}
	address := nftables.TypeIPAddr
	if f.table == nftables.TableFamilyIPv6 {
		address = nftables.TypeIP6Addr
	}
	target, err := nftables.ConcatSetType(address, nftables.TypeInetService)
	if err != nil {
		return portMap{}, err
	}
	one, err := nftables.ConcatSetType(nftables.TypeInetProto, address, nftables.TypeInetService)
	if err != nil {
		return portMap{}, err
	}
	all, err := nftables.ConcatSetType(nftables.TypeInetProto, nftables.TypeInetService)
	if err != nil {
		return portMap{}, err
	}
	m := portMap{
		family: f, table: t,
		one: &nftables.Set{
			Table: t, Name: "address-ports", IsMap: true, Concatenation: true, KeyType: one, DataType: target,
		},
		all: &nftables.Set{Table: t, Name: "ports", IsMap: true, Concatenation: true, KeyType: all, DataType: target},
	}
	for _, p := range ports {
		if familyOf(p.to.Addr()) != f {
			continue
		}
		to := append(p.to.Addr().AsSlice(), word(p.to.Port())...)
		key := []byte{p.protocol, 0, 0, 0}
		if p.at.IsUnspecified() {
			m.in = append(m.in, nftables.SetElement{Key: append(key, word(p.port)...), Val: to})
			continue
		}
		m.inOne = append(m.inOne, nftables.SetElement{
			Key: append(append(key, p.at.AsSlice()...), word(p.port)...),
			Val: to,
		})
	}
	return m, nil
}

// addForwarding adds the rules that translate the destination of packets for the machine's host
// ports: of incoming packets and of those of the machine's own processes.
func (m portMap) addForwarding(c *nftables.Conn) error {
	if err := c.AddSet(m.one, m.inOne); err != nil {
		return err
	}
	if err := c.AddSet(m.all, m.in); err != nil {
		return err
	}
	ports := c.AddChain(&nftables.Chain{Name: "ports", Table: m.table})
	protocol := &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: firstWord}
	words := m.family.length / 4 // of an address
	dnat := &expr.NAT{
		Type:        expr.NATTypeDestNAT,
		Family:      m.family.number,
		RegAddrMin:  firstWord,
		RegProtoMin: firstWord + words,
	}
	rule := func(exprs ...expr.Any) { c.AddRule(&nftables.Rule{Table: m.table, Chain: ports, Exprs: exprs}) }
	if m.family.table == nftables.TableFamilyIPv6 {
		// Answers would not find their way back to ::1. Without a translation the connection is
		// refused at once, and a client that connects to localhost goes on to 127.0.0.1.
		loopback6 := netip.PrefixFrom(netip.IPv6Loopback(), 128)
		rule(append(
			matchSubnet(m.family.destination, expr.CmpOpEq, loopback6),
			&expr.Verdict{Kind: expr.VerdictReturn},
		)...)
	}
	rule(protocol,
		&expr.Payload{
			DestRegister: secondWord,
			Base:         expr.PayloadBaseNetworkHeader,
			Offset:       m.family.destination,
			Len:          m.family.length,
		},
		destinationPort(secondWord+words), lookup(m.one), dnat)
	rule(protocol, destinationPort(secondWord), lookup(m.all), dnat)
	for name, hook := range map[string]*nftables.ChainHook{
		"prerouting": nftables.ChainHookPrerouting,
		"output":     nftables.ChainHookOutput,
	} {
		chain := c.AddChain(&nftables.Chain{
			Name:     name,
			Table:    m.table,
			Type:     nftables.ChainTypeNAT,
			Hooknum:  hook,
			Priority: nftables.ChainPriorityNATDest,
		})
		if name == "prerouting" && m.family.table == nftables.TableFamilyIPv4 {
			// The kernel drops packets for the loopback that come from other links. It would not
			// recognise them after the destination was translated.
			c.AddRule(&nftables.Rule{Table: m.table, Chain: chain, Exprs: append(
				matchSubnet(m.family.destination, expr.CmpOpEq, loopback4), &expr.Verdict{Kind: expr.VerdictReturn})})
		}
		c.AddRule(&nftables.Rule{Table: m.table, Chain: chain, Exprs: []expr.Any{
			&expr.Fib{Register: 1, ResultADDRTYPE: true, FlagDADDR: true},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL)},
			&expr.Verdict{Kind: expr.VerdictJump, Chain: ports.Name},
		}})
	}
	return nil
}

// addReturnWays masquerades forwarded connections whose answers would not come back through this
// machine, where the translation is undone: those from a pod to another pod or to itself, whose
// answers would go straight, and those from the machine's loopback.
func addReturnWays(c *nftables.Conn, t *nftables.Table, bridge string, subnet netip.Prefix) {
	chain := c.AddChain(&nftables.Chain{
		Name: "postrouting", Table: t, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
	})
	f := familyOf(subnet.Addr())
	within := append(matchSubnet(f.source, expr.CmpOpEq, subnet), matchSubnet(f.destination, expr.CmpOpEq, subnet)...)
	c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: append(append(within, translated()...), &expr.Masq{})})
	if !subnet.Addr().Is4() {
		return // nothing is forwarded from ::1
	}
	c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: append(
		append(matchLink(expr.MetaKeyOIFNAME, bridge), matchSubnet(f.source, expr.CmpOpEq, loopback4)...),
		&expr.Masq{},
	)})
}

// loopback4 is the range that the kernel does not route unless a link's route_localnet is set.
var loopback4 = netip.MustParsePrefix("127.0.0.0/8")

// translated matches packets of connections whose destination was translated, as by host ports.
func translated() []expr.Any {
	return anyBit(expr.CtKeySTATUS, destinationChanged)
}

// anyBit matches packets of connections for which at least one of these bits of key is set.
func anyBit(key expr.CtKey, bits uint32) []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: key, Register: 1},
		&expr.Bitwise{
			SourceRegister: 1,
			DestRegister:   1,
			Len:            4,
			Mask:           binary.NativeEndian.AppendUint32(nil, bits),
			Xor:            make([]byte, 4),
		},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
}

// forgetFlows deletes the connection tracking entries of UDP flows whose port is forwarded
// elsewhere now: the kernel would use the old target as long as the flow continues.
func forgetFlows(ports []forwarding) error {
	for _, p := range ports {
		if p.protocol != unix.IPPROTO_UDP {
			continue
		}
		filter := &netlink.ConntrackFilter{}
		if err := filter.AddProtocol(p.protocol); err != nil {
			return err
		}
		if err := filter.AddPort(netlink.ConntrackOrigDstPort, p.port); err != nil {
			return err
		}
		stale := staleFlow{ConntrackFilter: filter, to: p.to}
		if _, err := netlink.ConntrackDeleteFilters(
			netlink.ConntrackTable, netlink.InetFamily(familyOf(p.to.Addr()).number), stale,
		); err != nil {
			return fmt.Errorf("deleting the tracked UDP flows of port %d: %w", p.port, err)
		}
	}
	return nil
}

// staleFlow matches flows of a port whose target is not the current one.
type staleFlow struct {
	*netlink.ConntrackFilter
	to netip.AddrPort
}

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (f staleFlow) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	answers, ok := netip.AddrFromSlice(flow.Reverse.SrcIP)
	goesThere := ok && answers.Unmap() == f.to.Addr() && flow.Reverse.SrcPort == f.to.Port()
	return f.ConntrackFilter.MatchConntrackFlow(flow) && !goesThere
}

func destinationPort(register uint32) *expr.Payload {
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}
}

// lookup replaces the key in the registers by the map's value for it.
func lookup(in *nftables.Set) *expr.Lookup {
	return &expr.Lookup{
		SourceRegister: firstWord,
		DestRegister:   firstWord,
		IsDestRegSet:   true,
		SetName:        in.Name,
		SetID:          in.ID,
	}
}

// matchLink compares the name of the link that a packet arrives or leaves by.
func matchLink(key expr.MetaKey, name string) []expr.Any {
	return compareLink(key, expr.CmpOpEq, name)
}

func compareLink(key expr.MetaKey, op expr.CmpOp, name string) []expr.Any {
	return []expr.Any{&expr.Meta{Key: key, Register: 1}, &expr.Cmp{Op: op, Register: 1, Data: ifname(name)}}
}

// ifname returns a link's name in the form in which the kernel compares it.
func ifname(name string) []byte {
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, name)
	return padded
}

// word returns a port as an element of a concatenation in nftables: in network byte order, padded
// to 4 bytes.
func word(port uint16) []byte { return append(binary.BigEndian.AppendUint16(nil, port), 0, 0) }

// routeLocal turns on or off whether packets from the machine's loopback may go to pods by the
// bridge, and their answers come back.
func routeLocal(bridge string, on bool) error {
	value := []byte{'0'}
	if on {
		value[0] = '1'
	}
	path := "/proc/sys/net/ipv4/conf/" + bridge + "/route_localnet"
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if len(b) > 0 && b[0] == value[0] {
		return nil
	}
	return os.WriteFile(path, value, 0)
}
