package portmap

import (
	"encoding/binary"
	"net/netip"
	"os"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/network/nft"
)

// forwarding is a host port and the pod's address and port that it is forwarded to.
type forwarding struct {
	protocol byte
	at       netip.Addr // the machine's address; unspecified: all of its family
	port     uint16
	to       netip.AddrPort
}

// The names of a table's maps of ports at a single address, and of those at all addresses. Other podruns read them.
const (
	onePorts = "address-ports"
	allPorts = "ports"
)

// Table returns the name of the nftables table of a bridge's host ports.
func Table(bridge string) string { return bridge + "-ports" }

// addPorts adds ports to the bridge's tables of host ports. It needs a fifth of the time of
// publishPorts, because the kernel does not have to wait until the replaced objects are unused. It
// fails if the tables do not exist or have other targets for these ports.
func addPorts(bridge string, ports []forwarding) error {
	c, err := nft.New()
	if err != nil {
		return err
	}
	for _, f := range nft.Families() {
		m, err := newPortMap(bridge, f, ports)
		if err != nil {
			return err
		}
		for set, elements := range map[*nftables.Set][]nftables.SetElement{m.one: m.inOne, m.all: m.in} {
			if err := nft.AddElements(c, set, elements); err != nil {
				return err
			}
		}
	}
	return c.Flush()
}

// publishPorts replaces the contents of the bridge's tables of host ports; without ports it removes
// the tables. It is one transaction, and existing connections continue.
func publishPorts(bridge string, subnets []netip.Prefix, ports []forwarding) error {
	c, err := nft.New()
	if err != nil {
		return err
	}
	for _, f := range nft.Families() {
		m, err := newPortMap(bridge, f, ports)
		if err != nil {
			return err
		}
		of := slices.IndexFunc(subnets, func(s netip.Prefix) bool { return nft.FamilyOf(s.Addr()) == f })
		needed := of >= 0 && len(m.in)+len(m.inOne) > 0
		if !needed { // the kernel may lack the family
			if _, err := c.ListTableOfFamily(m.table.Name, f.Table); err != nil {
				continue
			}
		}
		// Added first, so that deleting it never fails.
		c.AddTable(m.table)
		c.DelTable(m.table)
		if !needed {
			continue
		}
		c.AddTable(m.table)
		if err := m.addForwarding(c); err != nil {
			return err
		}
		addReturnWays(c, m.table, bridge, subnets[of])
	}
	return c.Flush()
}

// portMap is the two maps of a table from a host port to its target: one for ports at a single
// address, one for ports at all addresses. A packet that the first map does not match is looked up
// in the second.
type portMap struct {
	family    nft.Family
	table     *nftables.Table
	one, all  *nftables.Set
	inOne, in []nftables.SetElement
}

// newPortMap returns the maps of one family, with the ports of that family.
func newPortMap(bridge string, f nft.Family, ports []forwarding) (portMap, error) {
	t := &nftables.Table{Family: f.Table, Name: Table(bridge)}
	address := nftables.TypeIPAddr
	if f.Table == nftables.TableFamilyIPv6 {
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
			Table: t, Name: onePorts, IsMap: true, Concatenation: true, KeyType: one, DataType: target,
		},
		all: &nftables.Set{Table: t, Name: allPorts, IsMap: true, Concatenation: true, KeyType: all, DataType: target},
	}
	for _, p := range ports {
		if nft.FamilyOf(p.to.Addr()) != f {
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
	if err := nft.AddSet(c, m.one, m.inOne); err != nil {
		return err
	}
	if err := nft.AddSet(c, m.all, m.in); err != nil {
		return err
	}
	ports := c.AddChain(&nftables.Chain{Name: "ports", Table: m.table})
	protocol := &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: nft.FirstWord}
	words := m.family.Length / 4 // of an address
	dnat := &expr.NAT{
		Type:        expr.NATTypeDestNAT,
		Family:      m.family.Number,
		RegAddrMin:  nft.FirstWord,
		RegProtoMin: nft.FirstWord + words,
	}
	rule := func(exprs ...expr.Any) { c.AddRule(&nftables.Rule{Table: m.table, Chain: ports, Exprs: exprs}) }
	if m.family.Table == nftables.TableFamilyIPv6 {
		// Answers would not find their way back to ::1. Without a translation the connection is
		// refused at once, and a client that connects to localhost goes on to 127.0.0.1.
		loopback6 := netip.PrefixFrom(netip.IPv6Loopback(), 128)
		rule(append(
			nft.MatchSubnet(m.family.Destination, expr.CmpOpEq, loopback6),
			&expr.Verdict{Kind: expr.VerdictReturn},
		)...)
	}
	rule(protocol,
		&expr.Payload{
			DestRegister: nft.SecondWord,
			Base:         expr.PayloadBaseNetworkHeader,
			Offset:       m.family.Destination,
			Len:          m.family.Length,
		},
		destinationPort(nft.SecondWord+words), lookup(m.one), dnat)
	rule(protocol, destinationPort(nft.SecondWord), lookup(m.all), dnat)
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
		if name == "prerouting" && m.family.Table == nftables.TableFamilyIPv4 {
			// The kernel drops packets for the loopback that come from other links. It would not
			// recognise them after the destination was translated.
			c.AddRule(&nftables.Rule{Table: m.table, Chain: chain, Exprs: append(
				nft.MatchSubnet(m.family.Destination, expr.CmpOpEq, nft.Loopback4),
				&expr.Verdict{Kind: expr.VerdictReturn},
			)})
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
	f := nft.FamilyOf(subnet.Addr())
	within := append(
		nft.MatchSubnet(f.Source, expr.CmpOpEq, subnet),
		nft.MatchSubnet(f.Destination, expr.CmpOpEq, subnet)...,
	)
	c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: append(append(within, nft.Translated()...), &expr.Masq{})})
	if !subnet.Addr().Is4() {
		return // nothing is forwarded from ::1
	}
	c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: append(
		append(nft.MatchLink(expr.MetaKeyOIFNAME, bridge), nft.MatchSubnet(f.Source, expr.CmpOpEq, nft.Loopback4)...),
		&expr.Masq{},
	)})
}

func destinationPort(register uint32) *expr.Payload {
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}
}

// lookup replaces the key in the registers by the map's value for it.
func lookup(in *nftables.Set) *expr.Lookup {
	return &expr.Lookup{
		SourceRegister: nft.FirstWord,
		DestRegister:   nft.FirstWord,
		IsDestRegSet:   true,
		SetName:        in.Name,
		SetID:          in.ID,
	}
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
