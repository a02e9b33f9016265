package network

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The fence is a table of nftables' bridge family that lets a pod send only what is from itself: frames from its own
// hardware address, packets from its own addresses, ARP and IPv6's neighbour advertisements for these alone, and no
// router's advertisements or redirects. A container may craft any frame: CAP_NET_RAW is among Kubernetes' defaults.

// fenced is a port of the bridge and whose packets come in by it.
type fenced struct {
	link        string
	addr, addr6 netip.Addr
}

// Hardware addresses of both ends of a pod's link are made of its IPv4 address, so that nothing need be kept: the
// pod's is that which Kubernetes' own plugins give, the machine's tells a port of a podrun that fences from an older one.
var podPrefix, portPrefix = [2]byte{0x0a, 0x58}, [2]byte{0x0a, 0x5a}

func macOf(prefix [2]byte, addr netip.Addr) net.HardwareAddr {
	four := addr.As4()
	return append(net.HardwareAddr{prefix[0], prefix[1]}, four[:]...)
}

// linkLocal is the address that the kernel makes of a hardware address (RFC 4291, appendix A).
func linkLocal(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5]})
}

// fence is the table with its sets: of the ports, and of what may come in by each.
type fence struct {
	table                      *nftables.Table
	ports, macs, addrs, addrs6 *nftables.Set
}

func newFence(bridge string) (fence, error) {
	f := fence{table: &nftables.Table{Family: nftables.TableFamilyBridge, Name: bridge}}
	f.ports = &nftables.Set{Table: f.table, Name: "ports", KeyType: nftables.TypeIFName}
	for _, s := range []struct {
		set  **nftables.Set
		name string
		of   nftables.SetDatatype
	}{{&f.macs, "hardware-addresses", nftables.TypeEtherAddr}, {&f.addrs, "addresses", nftables.TypeIPAddr}, {&f.addrs6, "addresses6", nftables.TypeIP6Addr}} {
		key, err := nftables.ConcatSetType(nftables.TypeIFName, s.of)
		if err != nil {
			return f, err
		}
		*s.set = &nftables.Set{Table: f.table, Name: s.name, KeyType: key, Concatenation: true}
	}
	return f, nil
}

// sets are the fence's, with what they have for the ports.
func (f fence) sets(ports []fenced) map[*nftables.Set][]nftables.SetElement {
	out := map[*nftables.Set][]nftables.SetElement{f.ports: nil, f.macs: nil, f.addrs: nil, f.addrs6: nil}
	add := func(to *nftables.Set, link string, what []byte) {
		key := append(ifname(link), what...)
		for len(key)%4 != 0 {
			key = append(key, 0)
		}
		out[to] = append(out[to], nftables.SetElement{Key: key})
	}
	for _, p := range ports {
		mac := macOf(podPrefix, p.addr)
		add(f.ports, p.link, nil)
		add(f.macs, p.link, mac)
		add(f.addrs, p.link, p.addr.AsSlice())
		add(f.addrs6, p.link, linkLocal(mac).AsSlice())
		if p.addr6.IsValid() {
			add(f.addrs6, p.link, p.addr6.AsSlice())
		}
	}
	return out
}

// publishFence makes the bridge's fence anew, for these ports; others are not fenced.
func publishFence(bridge string, ports []fenced) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	f, err := newFence(bridge)
	if err != nil {
		return err
	}
	// Added first, so that removing never fails; all in one transaction.
	c.AddTable(f.table)
	c.DelTable(f.table)
	c.AddTable(f.table)
	elements := f.sets(ports)
	for _, set := range []*nftables.Set{f.ports, f.macs, f.addrs, f.addrs6} {
		if err := c.AddSet(set, elements[set]); err != nil {
			return err
		}
	}
	chain := c.AddChain(&nftables.Chain{
		Name: "from-pods", Table: f.table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRef(-300), // before anything else looks at it
	})
	for _, rule := range f.rules() {
		c.AddRule(&nftables.Rule{Table: f.table, Chain: chain, Exprs: rule})
	}
	return c.Flush()
}

// Offsets within headers, in bytes.
const (
	etherSource   = 6
	arpEther      = 8  // the sender's hardware address
	arpAddress    = 14 // the sender's IPv4 address
	source4       = 12
	source6       = 8
	icmpType      = 0
	neighbourAddr = 8 // the address that a neighbour advertisement is for
)

// Types of ICMPv6 (RFC 4861).
const (
	routerAdvertisement   = 134
	neighbourSolicitation = 135
	neighbourAdvert       = 136
	redirect              = 137
)

func (f fence) rules() [][]expr.Any {
	name := &expr.Meta{Key: expr.MetaKeyIIFNAME, Register: firstWord}
	const afterName = firstWord + unix.IFNAMSIZ/4
	known := func(in *nftables.Set, base expr.PayloadBase, offset, length uint32) []expr.Any {
		return []expr.Any{name, &expr.Payload{DestRegister: afterName, Base: base, Offset: offset, Len: length}, is(in, false)}
	}
	unknown := func(in *nftables.Set, base expr.PayloadBase, offset, length uint32) []expr.Any {
		exprs := known(in, base, offset, length)
		exprs[2] = is(in, true)
		return exprs
	}
	icmp6 := func(kind byte) []expr.Any {
		return append(matchProtocol(unix.ETH_P_IPV6),
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_ICMPV6}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: icmpType, Len: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{kind}})
	}
	header := expr.PayloadBaseNetworkHeader
	unspecified := matchSubnet(source6, expr.CmpOpEq, netip.PrefixFrom(netip.IPv6Unspecified(), 128))
	return [][]expr.Any{
		rule(expr.VerdictAccept, []expr.Any{name, is(f.ports, true)}),
		rule(expr.VerdictDrop, unknown(f.macs, expr.PayloadBaseLLHeader, etherSource, 6)),
		rule(expr.VerdictDrop, matchProtocol(unix.ETH_P_ARP), unknown(f.macs, header, arpEther, 6)),
		rule(expr.VerdictAccept, matchProtocol(unix.ETH_P_ARP), known(f.addrs, header, arpAddress, 4)),
		rule(expr.VerdictAccept, matchProtocol(unix.ETH_P_IP), known(f.addrs, header, source4, 4)),
		rule(expr.VerdictDrop, icmp6(routerAdvertisement)),
		rule(expr.VerdictDrop, icmp6(redirect)),
		rule(expr.VerdictDrop, icmp6(neighbourAdvert), unknown(f.addrs6, expr.PayloadBaseTransportHeader, neighbourAddr, 16)),
		rule(expr.VerdictAccept, icmp6(neighbourSolicitation), unspecified), // whether it has its address for itself
		rule(expr.VerdictAccept, matchProtocol(unix.ETH_P_IPV6), known(f.addrs6, header, source6, 16)),
		rule(expr.VerdictDrop),
	}
}

// rule is a verdict on what meets all conditions.
func rule(verdict expr.VerdictKind, conditions ...[]expr.Any) []expr.Any {
	var exprs []expr.Any
	for _, c := range conditions {
		exprs = append(exprs, c...)
	}
	return append(exprs, &expr.Counter{}, &expr.Verdict{Kind: verdict})
}

// is asks whether what is in the registers is in a set, or whether it is not.
func is(in *nftables.Set, not bool) expr.Any {
	return &expr.Lookup{SourceRegister: firstWord, SetName: in.Name, SetID: in.ID, Invert: not}
}

// matchProtocol compares what a frame carries.
func matchProtocol(kind uint16) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyPROTOCOL, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.BigEndian.AppendUint16(nil, kind)},
	}
}

// addFence adds a port to the bridge's fence, which is in a fraction of the time that publishFence takes. It fails unless
// the fence is there.
func addFence(bridge string, p fenced) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	f, err := newFence(bridge)
	if err != nil {
		return err
	}
	for set, elements := range f.sets([]fenced{p}) {
		if err := c.SetAddElements(set, elements); err != nil {
			return err
		}
	}
	return c.Flush()
}

// fenceIn lets the port of id send what is its pod's, and nothing else. The caller holds the lock.
func (b *Bridge) fenceIn(outside *netlink.Handle, rec record, p fenced) {
	if addFence(rec.Bridge, p) == nil {
		return
	}
	if err := b.refence(outside, rec); err != nil {
		b.sayUnfenced(err)
	}
}

func (b *Bridge) sayUnfenced(why error) {
	b.unfenced.Do(func() {
		b.log.Warn("pods are not kept from using each other's addresses: nftables' bridge family cannot be used", "why", why)
	})
}

// staleFences is how many ports that are gone the fence may have: the kernel takes 15 ms to forget some, however many.
const staleFences = 32

// fenceOut notes that a port is gone. The caller holds the lock.
func (b *Bridge) fenceOut(outside *netlink.Handle) error {
	if b.stale.Add(1) < staleFences {
		return nil
	}
	rec, err := b.load()
	if err != nil || rec.Bridge == "" {
		return err
	}
	if err := b.refence(outside, rec); err != nil {
		b.sayUnfenced(err)
	}
	return nil
}

func (b *Bridge) fencedOf(rec record, addr netip.Addr, id string) fenced {
	p := fenced{link: b.portName(id), addr: addr}
	if rec.Subnet6.IsValid() {
		p.addr6 = counterpart(addr, rec.Subnet6, rec.Subnet)
	}
	return p
}

// refence makes the fence anew, for all ports but those of a podrun that gave pods any hardware address.
func (b *Bridge) refence(outside *netlink.Handle, rec record) error {
	held, err := b.addresses()
	if err != nil {
		return err
	}
	var ports []fenced
	for addr, id := range held {
		link, err := outside.LinkByName(b.portName(id))
		if err != nil && !isNotFound(err) {
			return err
		}
		if err == nil && link.Attrs().HardwareAddr.String() != macOf(portPrefix, addr).String() {
			continue
		}
		ports = append(ports, b.fencedOf(rec, addr, id))
	}
	if err := publishFence(rec.Bridge, ports); err != nil {
		return fmt.Errorf("fencing pods in: %w", err)
	}
	b.stale.Store(0)
	return nil
}
