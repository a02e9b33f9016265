package bridge

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/network/netdev"
	"podrun.io/podrun/internal/network/nft"
	"podrun.io/podrun/internal/network/records"
)

// The fence is a table of nftables' bridge family. It drops what a pod sends with addresses that are
// not its own: frames from another hardware address, packets from other IP addresses, ARP packets and
// IPv6 neighbour advertisements for other addresses; also router advertisements and redirects. It is
// necessary because a container may craft any frame: CAP_NET_RAW is among Kubernetes' defaults.
//
// The kernel does not show every frame to the chains that filter what a bridge forwards: those to
// the addresses that are reserved for bridges (IEEE 802.1D) end at the port that they arrive by,
// where the machine receives them. No pod needs them, so the fence drops them where they can be
// seen: see showLLDP and the chain "reserved". That the bridge does not take one pod's hardware
// address for another's does not depend on the fence: see pin.

// fenced is a port of the bridge with the addresses that its pod may send from.
type fenced struct {
	link        string
	addr, addr6 netip.Addr
}

// Prefixes of the hardware addresses of the two ends of a pod's link; the other four bytes are its
// IPv4 address, so no record is needed. The pod's prefix is the one that Kubernetes' own plugins
// use. The machine's prefix distinguishes a port of a podrun that installs fences from a port of an
// older one.
var podPrefix, portPrefix = [2]byte{0x0a, 0x58}, [2]byte{0x0a, 0x5a}

func macOf(prefix [2]byte, addr netip.Addr) net.HardwareAddr {
	four := addr.As4()
	return append(net.HardwareAddr{prefix[0], prefix[1]}, four[:]...)
}

// linkLocal returns the link-local address that the kernel derives from a hardware address (RFC
// 4291, appendix A).
func linkLocal(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{
		0: 0xfe, 1: 0x80,
		8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff,
		12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5],
	})
}

// fenceTable is the nftables table with its sets: the fenced ports, and the addresses that each of them
// may send from.
type fenceTable struct {
	table                      *nftables.Table
	ports, macs, addrs, addrs6 *nftables.Set
	// advertised has a rule for each port and address that its pod may advertise. It is no set, because nft 1.0.6 does
	// not know that field of an advertisement, and would not read what it lists of a set for it.
	advertised *nftables.Chain
}

func fenceOf(bridge string) *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyBridge, Name: bridge}
}

func newFenceTable(bridge string) (fenceTable, error) {
	f := fenceTable{table: fenceOf(bridge)}
	f.advertised = &nftables.Chain{Table: f.table, Name: "advertised"}
	// The byte order is for the program nft, which otherwise lists other names than it reads.
	f.ports = &nftables.Set{
		Table: f.table, Name: "ports", KeyType: nftables.TypeIFName, KeyByteOrder: binaryutil.NativeEndian,
	}
	for _, s := range []struct {
		set  **nftables.Set
		name string
		of   nftables.SetDatatype
	}{
		{&f.macs, "hardware-addresses", nftables.TypeEtherAddr},
		{&f.addrs, "addresses", nftables.TypeIPAddr},
		{&f.addrs6, "addresses6", nftables.TypeIP6Addr},
	} {
		key, err := nftables.ConcatSetType(nftables.TypeIFName, s.of)
		if err != nil {
			return f, err
		}
		*s.set = &nftables.Set{Table: f.table, Name: s.name, KeyType: key, Concatenation: true}
	}
	return f, nil
}

// sets returns the elements of each of the fence's sets for the ports.
func (f fenceTable) sets(ports []fenced) map[*nftables.Set][]nftables.SetElement {
	out := map[*nftables.Set][]nftables.SetElement{f.ports: nil, f.macs: nil, f.addrs: nil, f.addrs6: nil}
	add := func(to *nftables.Set, link string, what []byte) {
		key := append(nft.LinkName(link), what...)
		padding := make([]byte, -len(key)&3) // to words
		out[to] = append(out[to], nftables.SetElement{Key: append(key, padding...)})
	}
	for _, p := range ports {
		add(f.ports, p.link, nil)
		add(f.macs, p.link, macOf(podPrefix, p.addr))
		add(f.addrs, p.link, p.addr.AsSlice())
		for _, addr := range p.all6() {
			add(f.addrs6, p.link, addr.AsSlice())
		}
	}
	return out
}

// all6 returns the IPv6 addresses that the pod may send from.
func (p fenced) all6() []netip.Addr {
	own := linkLocal(macOf(podPrefix, p.addr))
	if !p.addr6.IsValid() {
		return []netip.Addr{own}
	}
	return []netip.Addr{own, p.addr6}
}

// advertise lets the ports advertise their addresses. The rules precede that which drops other advertisements.
func (f fenceTable) advertise(c *nftables.Conn, ports []fenced) {
	for _, p := range ports {
		for _, addr := range p.all6() {
			c.InsertRule(&nftables.Rule{Table: f.table, Chain: f.advertised, Exprs: append(
				nft.MatchLink(expr.MetaKeyIIFNAME, p.link),
				&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: neighbourAddr, Len: 16},
				&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: addr.AsSlice()},
				&expr.Verdict{Kind: expr.VerdictReturn},
			)})
		}
	}
}

// publishFence creates or replaces the bridge's fence. Ports that are not among ports are not
// fenced.
func publishFence(bridge string, ports []fenced) error {
	c, err := nft.New()
	if err != nil {
		return err
	}
	f, err := newFenceTable(bridge)
	if err != nil {
		return err
	}
	// Added first, so that deleting it never fails; all in one transaction.
	c.AddTable(f.table)
	c.DelTable(f.table)
	c.AddTable(f.table)
	elements := f.sets(ports)
	for _, set := range []*nftables.Set{f.ports, f.macs, f.addrs, f.addrs6} {
		if err := nft.AddSet(c, set, elements[set]); err != nil {
			return err
		}
	}
	c.AddChain(f.advertised)
	c.AddRule(&nftables.Rule{Table: f.table, Chain: f.advertised, Exprs: nft.Rule(expr.VerdictDrop)})
	f.advertise(c, ports)
	chain := c.AddChain(&nftables.Chain{
		Name: "from-pods", Table: f.table, Type: nftables.ChainTypeFilter,
		// A low priority, to run before other chains.
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRef(-300),
	})
	for _, rule := range f.rules() {
		c.AddRule(&nftables.Rule{Table: f.table, Chain: chain, Exprs: rule})
	}
	chain = c.AddChain(&nftables.Chain{
		Name: "reserved", Table: f.table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityRef(-300),
	})
	for _, rule := range f.reserved() {
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

// reserved returns the rules that drop what a pod sends to the addresses reserved for bridges. The
// table sees the frames of all the machine's bridges, so the first rule lets those of others pass.
func (f fenceTable) reserved() [][]expr.Any {
	return [][]expr.Any{
		nft.Rule(expr.VerdictAccept, []expr.Any{inputName(), is(f.ports, true)}),
		nft.Rule(expr.VerdictDrop, []expr.Any{
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseLLHeader, Offset: 0, Len: 6},
			&expr.Bitwise{
				SourceRegister: 1, DestRegister: 1, Len: 6,
				Mask: []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xf0}, Xor: make([]byte, 6),
			},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{0x01, 0x80, 0xc2, 0, 0, 0}},
		}),
	}
}

func inputName() expr.Any { return &expr.Meta{Key: expr.MetaKeyIIFNAME, Register: nft.FirstWord} }

func (f fenceTable) rules() [][]expr.Any {
	name := inputName()
	const afterName = nft.FirstWord + unix.IFNAMSIZ/4
	known := func(in *nftables.Set, base expr.PayloadBase, offset, length uint32) []expr.Any {
		return []expr.Any{
			name, &expr.Payload{DestRegister: afterName, Base: base, Offset: offset, Len: length}, is(in, false),
		}
	}
	unknown := func(in *nftables.Set, base expr.PayloadBase, offset, length uint32) []expr.Any {
		exprs := known(in, base, offset, length)
		exprs[2] = is(in, true)
		return exprs
	}
	icmp6 := func(kind byte) []expr.Any {
		return append(nft.MatchProtocol(unix.ETH_P_IPV6),
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_ICMPV6}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: icmpType, Len: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{kind}})
	}
	header := expr.PayloadBaseNetworkHeader
	unspecified := nft.MatchSubnet(source6, expr.CmpOpEq, netip.PrefixFrom(netip.IPv6Unspecified(), 128))
	return append(f.reserved(), [][]expr.Any{
		nft.Rule(expr.VerdictDrop, unknown(f.macs, expr.PayloadBaseLLHeader, etherSource, 6)),
		nft.Rule(expr.VerdictDrop, nft.MatchProtocol(unix.ETH_P_ARP), unknown(f.macs, header, arpEther, 6)),
		nft.Rule(expr.VerdictAccept, nft.MatchProtocol(unix.ETH_P_ARP), known(f.addrs, header, arpAddress, 4)),
		nft.Rule(expr.VerdictAccept, nft.MatchProtocol(unix.ETH_P_IP), known(f.addrs, header, source4, 4)),
		nft.Rule(expr.VerdictDrop, icmp6(routerAdvertisement)),
		nft.Rule(expr.VerdictDrop, icmp6(redirect)),
		append(icmp6(neighbourAdvert), &expr.Verdict{Kind: expr.VerdictJump, Chain: f.advertised.Name}),
		nft.Rule(expr.VerdictAccept, icmp6(neighbourSolicitation), unspecified), // duplicate address detection
		nft.Rule(expr.VerdictAccept, nft.MatchProtocol(unix.ETH_P_IPV6), known(f.addrs6, header, source6, 16)),
		nft.Rule(expr.VerdictDrop),
	}...)
}

// is matches if the value in the registers is in the set; with not, if it is not.
func is(in *nftables.Set, not bool) expr.Any {
	return &expr.Lookup{SourceRegister: nft.FirstWord, SetName: in.Name, SetID: in.ID, Invert: not}
}

// addFence adds a port to the bridge's fence, in a fraction of the time that publishFence needs. It
// fails if the fence does not exist.
func addFence(bridge string, p fenced) error {
	c, err := nft.New()
	if err != nil {
		return err
	}
	f, err := newFenceTable(bridge)
	if err != nil {
		return err
	}
	for set, elements := range f.sets([]fenced{p}) {
		if err := nft.AddElements(c, set, elements); err != nil {
			return err
		}
	}
	f.advertise(c, []fenced{p})
	return c.Flush()
}

// fence keeps the bridge's fence in step with the addresses that are allocated.
type fence struct {
	identity  identity
	records   *records.Dir
	addresses *ipam
	log       *slog.Logger
	// unfenced limits the warning that pods can use each other's addresses to one per process.
	unfenced sync.Once
	// stale counts the bridge ports that are removed but still in the fence.
	stale atomic.Int32
}

// add fences a port: it may send only from its pod's addresses. If that fails, it logs one
// warning per process. The caller holds the lock.
func (f *fence) add(outside *netlink.Handle, rec records.Record, p fenced) {
	if addFence(rec.Bridge, p) == nil {
		return
	}
	if err := f.rebuild(outside, rec); err != nil {
		f.warnUnfenced(err)
	}
}

func (f *fence) warnUnfenced(why error) {
	f.unfenced.Do(func() {
		f.log.Warn("cannot prevent pods from using each other's addresses: nftables' bridge family cannot be used",
			"err", why)
	})
}

// staleFences is how many removed ports may remain in the fence until it is created anew: the
// kernel needs 15 ms to remove elements, however many they are.
const staleFences = 32

// countRemoved counts a removed port, and creates the fence anew after staleFences of them. The caller
// holds the lock.
func (f *fence) countRemoved(outside *netlink.Handle) error {
	if f.stale.Add(1) < staleFences {
		return nil
	}
	rec, err := f.records.Load()
	if err != nil || rec.Bridge == "" {
		return err
	}
	if err := f.rebuild(outside, rec); err != nil {
		f.warnUnfenced(err)
	}
	return nil
}

func (f *fence) portOf(rec records.Record, addr netip.Addr, id string) fenced {
	p := fenced{link: f.identity.portName(id), addr: addr}
	if rec.Subnet6.IsValid() {
		p.addr6 = counterpart(addr, rec.Subnet6, rec.Subnet)
	}
	return p
}

// rebuild creates the fence anew.
func (f *fence) rebuild(outside *netlink.Handle, rec records.Record) error {
	var ports []fenced
	err := f.each(outside, rec, func(p fenced, _ netlink.Link) error {
		ports = append(ports, p)
		return nil
	})
	if err != nil {
		return err
	}
	if err = publishFence(rec.Bridge, ports); err == nil {
		err = f.records.Installed([]*nftables.Table{fenceOf(rec.Bridge)})
	}
	if err != nil {
		return fmt.Errorf("restricting what pods may send: %w", err)
	}
	f.stale.Store(0)
	return nil
}

// each calls do for all ports but those of an older podrun, which let the kernel choose the pod's
// hardware address. The link is nil if it does not exist yet, or any more.
func (f *fence) each(outside *netlink.Handle, rec records.Record, do func(fenced, netlink.Link) error) error {
	held, err := f.addresses.owners()
	if err != nil {
		return err
	}
	for addr, id := range held {
		link, err := outside.LinkByName(f.identity.portName(id))
		if err != nil && !netdev.IsNotFound(err) {
			return err
		}
		if err == nil && link.Attrs().HardwareAddr.String() != macOf(portPrefix, addr).String() {
			continue
		}
		if err := do(f.portOf(rec, addr, id), link); err != nil {
			return err
		}
	}
	return nil
}
