package nft

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// attributeHandle is NFTA_TABLE_HANDLE of linux/netfilter/nf_tables.h.
const attributeHandle = 4

// Handles returns the kernel's numbers of tables, by TableName; 0 for one that is not there. No other table gets
// a number until the machine boots, also not one of the same name that replaces it.
func Handles(tables []*nftables.Table) (map[string]uint64, error) {
	all := make(map[string]uint64, len(tables))
	for _, t := range tables {
		all[TableName(t)] = 0
		request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETTABLE, 0)
		name := nl.NewRtAttr(unix.NFTA_TABLE_NAME, nl.ZeroTerminated(t.Name))
		request.AddRawData(append([]byte{byte(t.Family), nl.NFNETLINK_V0, 0, 0}, name.Serialize()...))
		answers, err := request.Execute(unix.NETLINK_NETFILTER, 0)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("asking for nftables' table %s: %w", TableName(t), err)
		}
		value := attribute(answers, attributeHandle)
		if len(value) != 8 {
			return nil, fmt.Errorf("nftables' table %s has no number: %w", TableName(t), unix.EPROTO)
		}
		all[TableName(t)] = binary.BigEndian.Uint64(value)
	}
	return all, nil
}

// Generation returns the number of the machine's nftables rules as a whole: each change of them makes it another one.
func Generation() (uint32, error) {
	request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN, 0)
	request.AddRawData([]byte{unix.AF_UNSPEC, nl.NFNETLINK_V0, 0, 0})
	answers, err := request.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return 0, fmt.Errorf("asking for the generation of nftables' rules: %w", err)
	}
	value := attribute(answers, unix.NFTA_GEN_ID)
	if len(value) != 4 {
		return 0, fmt.Errorf("nftables' rules have no generation: %w", unix.EPROTO)
	}
	return binary.BigEndian.Uint32(value), nil
}

// attribute returns the value of an attribute in the kernel's answers; nil if none has it.
func attribute(answers [][]byte, kind uint16) []byte {
	for _, answer := range answers {
		attributes, err := nl.ParseRouteAttr(answer[min(nl.SizeofNfgenmsg, len(answer)):])
		if err != nil {
			return nil
		}
		for _, a := range attributes {
			if a.Attr.Type == kind {
				return a.Value
			}
		}
	}
	return nil
}
