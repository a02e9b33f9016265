package portmap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// endpoint is a protocol's port at an address.
type endpoint struct {
	protocol byte
	netip.AddrPort
}

// forgetFlows deletes the connection tracking entries of flows that go on elsewhere than new ones would: the kernel
// uses the old target as long as the flow continues. ports may lead elsewhere now, or to their targets again. ended are
// those of a pod that has ended; nothing needs to have its host ports now.
//
// A UDP flow goes on at the target that its port has now. An SCTP association stays with its pod until that has ended,
// because no other one could continue it. TCP needs nothing: the kernel lets a new connection replace one that has
// ended.
func forgetFlows(ports, ended []forwarding) error {
	targets, gone := map[endpoint]netip.AddrPort{}, map[endpoint]bool{}
	for _, p := range ports {
		if p.protocol != unix.IPPROTO_TCP {
			targets[endpoint{p.protocol, netip.AddrPortFrom(p.at, p.port)}] = p.to
		}
	}
	for _, p := range ended {
		if p.protocol != unix.IPPROTO_TCP {
			gone[endpoint{p.protocol, p.to}] = true
		}
	}
	if len(targets)+len(gone) == 0 {
		return nil
	}
	mine := machine{}
	return forget(func(entry []byte) bool {
		to, answers := flowOf(entry)
		return gone[endpoint{to.protocol, answers}] || mine.isStale(to, answers, targets)
	})
}

// forgetUnmasked deletes the connection tracking entries of flows that pods of the subnets began to others while no
// rule masqueraded them: the kernel would not do it as long as the flow continues, and so nobody could answer. A flow
// that was answered needs no masquerading and stays.
func forgetUnmasked(subnets []netip.Prefix) error {
	return forget(func(entry []byte) bool {
		attributes := entry[nl.SizeofNfgenmsg:]
		original, reply := attribute(attributes, nl.CTA_TUPLE_ORIG), attribute(attributes, nl.CTA_TUPLE_REPLY)
		from := addressOf(original, nl.CTA_IP_V4_SRC, nl.CTA_IP_V6_SRC)
		to := addressOf(original, nl.CTA_IP_V4_DST, nl.CTA_IP_V6_DST)
		status := attribute(attributes, nl.CTA_STATUS)
		return len(status) == 4 && binary.BigEndian.Uint32(status)&answered == 0 &&
			addressOf(reply, nl.CTA_IP_V4_DST, nl.CTA_IP_V6_DST) == from &&
			slices.ContainsFunc(subnets, func(s netip.Prefix) bool { return s.Contains(from) && !s.Contains(to) })
	})
}

// answered is the bit of a flow's status which says that there was a packet of both directions (IPS_SEEN_REPLY in
// linux/netfilter/nf_conntrack_common.h).
const answered = 1 << 1

// forget deletes the connection tracking entries that are stale.
func forget(stale func(entry []byte) bool) error {
	all, err := conntrack(nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP, []byte{unix.AF_UNSPEC, nl.NFNETLINK_V0, 0, 0})
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return fmt.Errorf("listing the tracked flows: %w", err)
	}
	for _, entry := range all {
		if !stale(entry) {
			continue
		}
		_, err := conntrack(nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK, entry)
		if err != nil && !errors.Is(err, unix.ENOENT) { // it has ended meanwhile
			to, _ := flowOf(entry)
			return fmt.Errorf("deleting the tracked flow to port %d: %w", to.Port(), err)
		}
	}
	return nil
}

// machine says which addresses are the machine's. It asks the kernel once for each: there may be many flows.
type machine map[netip.Addr]bool

// isStale reports that a flow's port leads elsewhere now. A port at a single address comes before one at all addresses.
func (m machine) isStale(to endpoint, answers netip.AddrPort, targets map[endpoint]netip.AddrPort) bool {
	all := netip.IPv4Unspecified()
	if to.Addr().Is6() {
		all = netip.IPv6Unspecified()
	}
	target, one := targets[to]
	if !one {
		target = targets[endpoint{to.protocol, netip.AddrPortFrom(all, to.Port())}]
	}
	if !target.IsValid() || answers == target || to.protocol == unix.IPPROTO_SCTP && answers != to.AddrPort {
		return false
	}
	return one || m.isForwarded(to.Addr())
}

// isForwarded reports whether a port at all addresses is also at addr: it is the machine's, and not ::1.
func (m machine) isForwarded(addr netip.Addr) bool {
	forwarded, known := m[addr]
	if !known {
		routes, err := netlink.RouteGet(addr.AsSlice())
		forwarded = err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL && addr != netip.IPv6Loopback()
		m[addr] = forwarded
	}
	return forwarded
}

// conntrack sends a request whose message begins with netfilter's header, and returns the answers, which do too.
func conntrack(operation, flags int, message []byte) ([][]byte, error) {
	request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|operation, flags)
	request.AddRawData(message)
	return request.Execute(unix.NETLINK_NETFILTER, 0)
}

// flowOf returns where the first packet of an entry's flow was sent to, and where its answers come from: the same,
// unless the destination was translated. Package netlink does not decode the ports of SCTP.
func flowOf(entry []byte) (to endpoint, answers netip.AddrPort) {
	attributes := entry[nl.SizeofNfgenmsg:]
	original, reply := attribute(attributes, nl.CTA_TUPLE_ORIG), attribute(attributes, nl.CTA_TUPLE_REPLY)
	if protocol := attribute(original, nl.CTA_TUPLE_PROTO, nl.CTA_PROTO_NUM); len(protocol) == 1 {
		to.protocol = protocol[0]
	}
	to.AddrPort = endOf(original, nl.CTA_IP_V4_DST, nl.CTA_IP_V6_DST, nl.CTA_PROTO_DST_PORT)
	return to, endOf(reply, nl.CTA_IP_V4_SRC, nl.CTA_IP_V6_SRC, nl.CTA_PROTO_SRC_PORT)
}

// endOf returns one end of a tuple, given the attributes that have it.
func endOf(tuple []byte, ip4, ip6, port uint16) netip.AddrPort {
	number := attribute(tuple, nl.CTA_TUPLE_PROTO, port)
	if len(number) != 2 { // a protocol without ports
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(addressOf(tuple, ip4, ip6), binary.BigEndian.Uint16(number))
}

// addressOf is endOf for the address alone.
func addressOf(tuple []byte, ip4, ip6 uint16) netip.Addr {
	text := attribute(tuple, nl.CTA_TUPLE_IP, ip4)
	if text == nil {
		text = attribute(tuple, nl.CTA_TUPLE_IP, ip6)
	}
	addr, _ := netip.AddrFromSlice(text)
	return addr
}

// attribute returns the value of a netlink attribute, which further kinds search in turn; nil if there is none.
func attribute(in []byte, kinds ...uint16) []byte {
	for _, kind := range kinds {
		rest := in
		in = nil
		for len(rest) >= nl.SizeofNfattr {
			length := int(binary.NativeEndian.Uint16(rest))
			if length < nl.SizeofNfattr || length > len(rest) {
				break
			}
			if binary.NativeEndian.Uint16(rest[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER) == kind {
				in = rest[nl.SizeofNfattr:length]
				break
			}
			rest = rest[min((length+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1), len(rest)):]
		}
	}
	return in
}
