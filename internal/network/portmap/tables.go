package portmap

import (
	"net/netip"
	"slices"

	"github.com/google/nftables"

	"podrun.io/podrun/internal/network/nft"
	"podrun.io/podrun/internal/network/records"
)

// Tables returns the nftables tables that the recorded host ports need, and those that may be there but that no port
// needs. Without the lock, some may not be there yet or still be there.
func (t *Ports) Tables(rec records.Record) (needed, needless []*nftables.Table, err error) {
	held, err := t.portRecords()
	if err != nil {
		return nil, nil, err
	}
	var ports []forwarding
	for _, c := range held {
		ports = append(ports, forwardings(c)...)
	}
	needed, needless = tablesFor(rec, ports)
	return needed, needless, nil
}

func tablesFor(rec records.Record, ports []forwarding) (needed, needless []*nftables.Table) {
	for _, f := range nft.Families() {
		has := slices.ContainsFunc(rec.Subnets(), func(s netip.Prefix) bool { return nft.FamilyOf(s.Addr()) == f })
		to := &needless
		if has && slices.ContainsFunc(ports, func(p forwarding) bool { return nft.FamilyOf(p.to.Addr()) == f }) {
			to = &needed
		}
		*to = append(*to, &nftables.Table{Family: f.Table, Name: Table(rec.Bridge)})
	}
	return needed, needless
}
