package nft

import (
	"encoding/binary"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Generation returns the number of the machine's nftables rules as a whole: each change of them makes it another one.
func Generation() (uint32, error) {
	request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN, 0)
	request.AddRawData([]byte{unix.AF_UNSPEC, nl.NFNETLINK_V0, 0, 0})
	answers, err := request.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return 0, fmt.Errorf("asking for the generation of nftables' rules: %w", err)
	}
	for _, answer := range answers {
		attributes, err := nl.ParseRouteAttr(answer[min(nl.SizeofNfgenmsg, len(answer)):])
		if err != nil {
			return 0, fmt.Errorf("reading the generation of nftables' rules: %w", err)
		}
		for _, a := range attributes {
			if a.Attr.Type == unix.NFTA_GEN_ID && len(a.Value) == 4 {
				return binary.BigEndian.Uint32(a.Value), nil
			}
		}
	}
	return 0, fmt.Errorf("nftables' rules have no generation: %w", unix.EPROTO)
}
