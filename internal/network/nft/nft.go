// Package nft has what podrun's nftables rules share: the two address families, expressions that match packets by
// subnet, link and connection, the generation of all rules, the numbers of tables, and how the kernel is given rules of
// any number.
//
// It installs nothing: packages bridge, portmap and firewall own their rules. It removes whole tables for them.
//
// Start reading at Family and Rule.
package nft

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// destinationChanged is the bit of a connection's status which says that its destination was
// translated (IPS_DST_NAT in linux/netfilter/nf_conntrack_common.h).
const destinationChanged = 1 << 5

// FirstWord and SecondWord are consecutive nftables registers of 4 bytes each.
const (
	FirstWord = 8 + iota
	SecondWord
)

// Loopback4 is the range that the kernel does not route unless a link's route_localnet is set.
var Loopback4 = netip.MustParsePrefix("127.0.0.0/8")

// Family is an address family (IPv4 or IPv6) as nftables names it, with the offsets of the
// addresses in the packet header and their length, in bytes.
type Family struct {
	Table               nftables.TableFamily
	Number              uint32
	Source, Destination uint32
	Length              uint32
}

// FamilyOf returns the family of an address.
func FamilyOf(addr netip.Addr) Family {
	if addr.Is4() {
		return Family{
			Table:       nftables.TableFamilyIPv4,
			Number:      unix.NFPROTO_IPV4,
			Source:      12,
			Destination: 16,
			Length:      4,
		}
	}
	return Family{
		Table:       nftables.TableFamilyIPv6,
		Number:      unix.NFPROTO_IPV6,
		Source:      8,
		Destination: 24,
		Length:      16,
	}
}

// Families returns IPv4 and IPv6.
func Families() []Family {
	return []Family{FamilyOf(netip.IPv4Unspecified()), FamilyOf(netip.IPv6Unspecified())}
}

// TableName returns a table's family and name as the program nft names it, such as "ip filter".
func TableName(t *nftables.Table) string {
	family := map[nftables.TableFamily]string{
		nftables.TableFamilyIPv4:   "ip",
		nftables.TableFamilyIPv6:   "ip6",
		nftables.TableFamilyINet:   "inet",
		nftables.TableFamilyBridge: "bridge",
	}[t.Family]
	return family + " " + t.Name
}

// TableNames returns the names of tables in one string, whatever their order.
func TableNames(tables []*nftables.Table) string {
	names := make([]string, len(tables))
	for i, t := range tables {
		names[i] = TableName(t)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// buffer is how many bytes a transaction and the kernel's answers to it may have: it answers each rule, and the answers
// wait until all are sent. A bridge's fence has two rules for each of at most 1,023 pods.
const buffer = 8 << 20

// New returns a connection for transactions of any length that podrun needs. Who may not have such buffers, as in a
// user namespace, has what the kernel allows, which is enough for fewer pods.
func New() (*nftables.Conn, error) {
	return nftables.New(nftables.WithSockOptions(func(c *netlink.Conn) error {
		_, _ = c.SetReadBuffer(buffer), c.SetWriteBuffer(buffer)
		return nil
	}))
}

// chunk is how many elements of a set one message has. They are one attribute of it, of at most 64 KiB: the library
// cuts the length of a longer one to 16 bits, and does not say so. An element has at most some 90 bytes.
const chunk = 256

// AddSet adds a set or a map with any number of elements.
func AddSet(c *nftables.Conn, set *nftables.Set, elements []nftables.SetElement) error {
	if err := c.AddSet(set, nil); err != nil {
		return err
	}
	return AddElements(c, set, elements)
}

// AddElements adds any number of elements to a set or a map.
func AddElements(c *nftables.Conn, set *nftables.Set, elements []nftables.SetElement) error {
	for some := range slices.Chunk(elements, chunk) {
		if err := c.SetAddElements(set, some); err != nil {
			return err
		}
	}
	return nil
}

// RemoveTables removes those of the machine's tables for which which returns true. It is one transaction, because the
// kernel waits for all processors at the end of each.
func RemoveTables(which func(*nftables.Table) bool) error {
	c, err := New()
	if err != nil {
		return err
	}
	for range 3 {
		var all []*nftables.Table
		if all, err = c.ListTables(); err != nil {
			return err
		}
		for _, t := range all {
			if which(t) {
				c.DelTable(t)
			}
		}
		if err = c.Flush(); !errors.Is(err, unix.ENOENT) { // another program has removed one meanwhile
			return err
		}
	}
	return err
}

// MatchProtocol matches frames of an EtherType.
func MatchProtocol(kind uint16) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyPROTOCOL, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.BigEndian.AppendUint16(nil, kind)},
	}
}

// MatchSubnet compares the network part of the address at offset in the IP header with the
// subnet's.
func MatchSubnet(offset uint32, op expr.CmpOp, subnet netip.Prefix) []expr.Any {
	length := FamilyOf(subnet.Addr()).Length
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: length},
		&expr.Bitwise{
			SourceRegister: 1, DestRegister: 1, Len: length,
			Mask: net.CIDRMask(subnet.Bits(), int(8*length)), Xor: make([]byte, length),
		},
		&expr.Cmp{Op: op, Register: 1, Data: subnet.Masked().Addr().AsSlice()},
	}
}

// Translated matches packets of connections whose destination was translated, as by host ports.
func Translated() []expr.Any {
	return AnyBit(expr.CtKeySTATUS, destinationChanged)
}

// AnyBit matches packets of connections for which at least one of these bits of key is set.
func AnyBit(key expr.CtKey, bits uint32) []expr.Any {
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

// MatchLink compares the name of the link that a packet arrives or leaves by.
func MatchLink(key expr.MetaKey, name string) []expr.Any {
	return CompareLink(key, expr.CmpOpEq, name)
}

// CompareLink is MatchLink with another comparison.
func CompareLink(key expr.MetaKey, op expr.CmpOp, name string) []expr.Any {
	return []expr.Any{&expr.Meta{Key: key, Register: 1}, &expr.Cmp{Op: op, Register: 1, Data: LinkName(name)}}
}

// LinkName returns a link's name in the form in which the kernel compares it.
func LinkName(name string) []byte {
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, name)
	return padded
}

// Rule returns the expressions of a rule: a verdict on packets that meet all conditions.
func Rule(verdict expr.VerdictKind, conditions ...[]expr.Any) []expr.Any {
	var exprs []expr.Any
	for _, c := range conditions {
		exprs = append(exprs, c...)
	}
	return append(exprs, &expr.Counter{}, &expr.Verdict{Kind: verdict})
}
