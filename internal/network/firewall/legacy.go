package firewall

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// legacy is an iptables of the kernel's from before nftables, of one family. Its rules are none of nftables': a packet
// has to pass both. podrun reads them only. Offsets and lengths are in bytes.
type legacy struct {
	command string // which changes its rules
	names   string // the file with the names of its tables
	level   int    // of its socket options
	family  int

	name  int // where a rule's match (struct ipt_ip, struct ip6t_ip6) has the name of the link in
	match int // how long that is
	// header is how long it is with what follows (struct ipt_entry, struct ip6t_entry). Other conditions are next.
	header int
}

var legacies = []legacy{
	{"iptables-legacy", "ip_tables_names", unix.IPPROTO_IP, unix.AF_INET, 16, 84, 112},
	{"ip6tables-legacy", "ip6_tables_names", unix.IPPROTO_IPV6, unix.AF_INET6, 64, 136, 168},
}

// Of linux/netfilter_ipv4/ip_tables.h and linux/netfilter/x_tables.h; those of IPv6 are the same.
const (
	getInfo, getEntries = 64, 65       // socket options: IPT_SO_GET_INFO, IPT_SO_GET_ENTRIES
	tableName           = 32           // XT_TABLE_MAXNAMELEN
	infoLength          = 84           // struct ipt_getinfo
	firstForward        = 36 + 8       // where it has the offset of FORWARD's first rule
	lastForward         = 56 + 8       // and of FORWARD's policy, which is a rule too
	sizeOfEntries       = 80           // and the length of all rules
	entriesHeader       = 40           // struct ipt_get_entries
	targetLength        = 36           // struct xt_standard_target, without what fills it up
	verdictOf           = 32           // where that has its verdict
	drop, accept        = -1, -2       // -NF_DROP - 1, -NF_ACCEPT - 1
	linkName            = 16           // IFNAMSIZ
	masks               = 2 * linkName // after the names of both links
)

// LegacyTables returns text that differs if other tables of iptables-legacy are there. nft.Generation does not say so.
func LegacyTables() string {
	var all strings.Builder
	for _, l := range legacies {
		names, _ := l.tables()
		fmt.Fprintf(&all, " %s: %q", l.command, names)
	}
	return all.String()
}

// tables returns the names of the tables that are there, a line each. To ask the kernel for another one would make it.
func (l legacy) tables() (string, error) {
	names, err := os.ReadFile("/proc/thread-self/net/" + l.names) // trusted: the kernel's
	if errors.Is(err, os.ErrNotExist) {
		err = nil // the kernel has none, or has not loaded it
	}
	return string(names), err
}

// blockedByLegacy returns the chain of each iptables-legacy that drops or rejects what is forwarded and lacks a rule
// that accepts what comes from the bridge or goes to it. It is valid also with an error.
func blockedByLegacy(bridge string) (blocked blockingError, err error) {
	for _, l := range legacies {
		blocks, err := l.blocks(bridge)
		if err != nil && !errors.Is(err, unix.ENOENT) { // it has just been removed
			return blocked, fmt.Errorf("reading the rules of %s: %w", l.command, err)
		}
		if blocks {
			blocked = append(blocked, blockingChain{l.command, forwardChain, bridge})
		}
	}
	return blocked, nil
}

func (l legacy) blocks(bridge string) (bool, error) {
	names, err := l.tables()
	if err != nil || !slices.Contains(strings.Fields(names), iptablesTable) {
		return false, err
	}
	socket, err := unix.Socket(l.family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, os.NewSyscallError("socket", err)
	}
	defer unix.Close(socket)
	info := make([]byte, infoLength)
	copy(info, iptablesTable)
	if err := getsockopt(socket, l.level, getInfo, info); err != nil {
		return false, err
	}
	entries := make([]byte, entriesHeader+word(info, sizeOfEntries))
	copy(entries, iptablesTable)
	copy(entries[tableName:], info[sizeOfEntries:])
	if err := getsockopt(socket, l.level, getEntries, entries); err != nil {
		return false, err
	}
	return l.judge(entries[entriesHeader:], word(info, firstForward), word(info, lastForward), bridge)
}

// judge reports whether FORWARD's policy, or the last rule before it, drops or rejects all packets, while no chain of
// the table has a rule that accepts all from the bridge, or all to it.
func (l legacy) judge(rules []byte, first, policy int, bridge string) (bool, error) {
	drops := false
	lacking := [][]byte{l.matching(bridge, 0), l.matching(bridge, linkName)}
	for at := 0; at < len(rules); {
		if at+l.header+targetLength > len(rules) {
			return false, fmt.Errorf("a rule of %d bytes: %w", len(rules)-at, unix.EPROTO)
		}
		r := rules[at:]
		target, next := short(r, l.match+4), at+short(r, l.match+6)
		if target == l.header { // it has no conditions but its match
			name, _, _ := bytes.Cut(r[target+2:target+verdictOf-1], []byte{0})
			verdict := int32(0)
			if len(name) == 0 {
				verdict = int32(word(r, target+verdictOf))
			}
			ends := at == policy || next == policy && at >= first
			if ends && !slices.ContainsFunc(r[:l.match], isSet) && (verdict == drop || string(name) == "REJECT") {
				drops = true
			}
			if verdict == accept {
				lacking = slices.DeleteFunc(lacking, func(m []byte) bool { return bytes.Equal(m, r[:l.match]) })
			}
		}
		if next <= at {
			return false, fmt.Errorf("a rule without length: %w", unix.EPROTO)
		}
		at = next
	}
	return drops && len(lacking) > 0, nil
}

// matching returns the match of all packets by the bridge: in, or out if at is the length of a link's name.
func (l legacy) matching(bridge string, at int) []byte {
	m := make([]byte, l.match)
	copy(m[l.name+at:], bridge)
	for i := range len(bridge) + 1 { // with the zero after it: without, it is a beginning
		m[l.name+masks+at+i] = 0xff
	}
	return m
}

func isSet(b byte) bool { return b != 0 }

func word(b []byte, at int) int { return int(binary.NativeEndian.Uint32(b[at:])) }

func short(b []byte, at int) int { return int(binary.NativeEndian.Uint16(b[at:])) }

func getsockopt(socket, level, option int, data []byte) error {
	length := uint32(len(data))
	_, _, err := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(socket), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&data[0])), uintptr(unsafe.Pointer(&length)), 0)
	if err != 0 {
		return os.NewSyscallError("getsockopt", err)
	}
	return nil
}
